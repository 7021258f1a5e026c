package cli

import (
	"errors"
	"fmt"

	"github.com/flowtally/flowtally/cmd/internal/capture"
	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/cmd/internal/replay"
)

// replayCmd counts a capture by flows.
type replayCmd struct {
	outputFlag
	flowsFlag
	Direction string `help:"Side of the interface on which the packets of the capture were seen: ${enum}." enum:"ingress,egress" default:"ingress"`
	Interface string `help:"Interface on which the packets were seen, for flows of one interface. Empty: the name in a pcapng file." complete:"interfaces" placeholder:"NAME"`
	File      string `arg:"" help:"The capture, pcap or pcapng; - is standard input."`
}

// Help is shown by replay --help.
func (*replayCmd) Help() string {
	return `Runs the classifier, the BPF program that counts on an interface, over every packet of a capture (BPF_PROG_TEST_RUN), and attaches it to no interface. Where the machine cannot load BPF, the linear matcher counts in its place, and a message says so. Link types: Ethernet, raw IP, the BSD loopback, Linux cooked captures.

A frame counts with the bytes that it had when it was captured, layer 2 without FCS, also where the capture has cut it. Exit code 1 when the capture is broken; the counts up to that place are printed.

Examples:

  flowtally replay traffic.pcap --config /etc/flowtally.yaml

  flowtally replay traffic.pcapng --flow 'web: tcp dport 443' --flow 'rest: any' -o json

  flowtally replay - --flow 'dns: udp dport 53' --direction egress`
}

func (c *replayCmd) Run(env *Env) error {
	flows, _, err := c.flows(env)
	if err != nil {
		return err
	}
	in, err := openCapture(env, c.File)
	if err != nil {
		return err
	}
	defer in.Close()

	o := replay.Options{
		Flows:     flows,
		Direction: direction(c.Direction),
		Interface: c.Interface,
		Logger:    env.Logger,
	}
	bar := replay.NewProgress(env.Stderr, in)
	if format.IsTerminal(env.Stderr) {
		o.Progress = bar.Show
	}
	rep, err := replay.Run(env.Context, in, o)
	bar.Clear()
	if err != nil {
		return hintCapture(fmt.Errorf("%s: %w", c.File, err))
	}

	if c.json() {
		err = rep.PrintJSON(env.Stdout, flows)
	} else {
		err = rep.Print(env.Stdout, flows)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(env.Stderr, "flowtally: %s: %s, %s\n", format.Printable(c.File), format.Plural(rep.Records.Packets, "record", "records"), format.Bytes(rep.Records.Bytes))
	for _, note := range rep.Notes() {
		fmt.Fprintf(env.Stderr, "flowtally: %s\n", format.PrintableLines(note))
	}

	// A broken capture is an error only now, after the counts up to the fault are printed.
	switch {
	case errors.Is(rep.Err, capture.ErrInflated):
		return withHint(fmt.Errorf("%s: %w", c.File, rep.Err), "decompress it first, where the file is yours: gunzip -k FILE")
	case rep.Err != nil:
		return withHint(fmt.Errorf("%s: the counts have the %s before the fault: %w", c.File, format.Plural(rep.Records.Packets, "record", "records"), rep.Err),
			"capinfos or tcpdump -r names the fault too; take the capture again")
	}
	return nil
}
