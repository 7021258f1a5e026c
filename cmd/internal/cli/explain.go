package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/flowtally/flowtally/cmd/internal/capture"
	"github.com/flowtally/flowtally/cmd/internal/explain"
	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/cmd/internal/replay"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// explainCmd says which flow counts a packet, and why.
type explainCmd struct {
	outputFlag
	flowsFlag
	Direction string   `help:"Side of the interface on which the packet is seen: ${enum}." enum:"ingress,egress" default:"ingress"`
	Interface string   `help:"Interface on which the packet is seen, for flows of one interface." complete:"interfaces" placeholder:"NAME"`
	Number    uint64   `short:"n" help:"Of a capture: the number of the packet." default:"1" placeholder:"N"`
	Packet    []string `arg:"" help:"The packet: in the words of a match, in hex, or a capture (pcap, pcapng; - is standard input)."`
}

// Help is shown by explain --help.
func (*explainCmd) Help() string {
	return `Decides the packet by the classifier, the BPF program that counts on an interface (BPF_PROG_TEST_RUN), and compares it with the linear matcher, which shares no code with it. Lists the flows in the order in which they win: the flow that counts the packet, the flows that match but are shadowed by it, and of every other flow the first field that differs. Where the machine cannot load BPF, the linear matcher decides alone, and a message says so.

A packet in words has one value for each field; fields that are left out have common values. A port range or a prefix is no packet.

Examples:

  flowtally explain ipv4 src 1.2.3.4 dst 10.0.0.1 tcp dport 443

  flowtally explain 'vlan id 100 ipv6 udp dport 53' --config /etc/flowtally.yaml

  flowtally explain traffic.pcap --number 17 --flow 'web: tcp dport 443' -o json`
}

func (c *explainCmd) Run(env *Env) error {
	p, err := c.packet(env)
	if err != nil {
		return err
	}
	flows, ordered, err := c.flows(env)
	if err != nil {
		return err
	}
	e, err := explain.New(flows, env.Logger)
	if err != nil {
		return err
	}
	defer e.Close()
	x, err := e.Explain(p)
	if errors.Is(err, explain.ErrDiffers) {
		return withHint(err, "this is a defect of flowtally: report it with the text above and the flows")
	}
	if err != nil {
		return err
	}
	switch {
	case x.NoBPF != nil:
		fmt.Fprintf(env.Stderr, "flowtally: the linear matcher has decided, not the classifier, because this process cannot load BPF: %s\n", format.PrintableLines(x.NoBPF.Error()))
	case x.Short:
		fmt.Fprintln(env.Stderr, "flowtally: the linear matcher has decided, not the classifier, because the kernel runs no program over a frame of this length")
	}
	if c.json() {
		return x.PrintJSON(env.Stdout, ordered)
	}
	return x.Print(env.Stdout, ordered)
}

// packet returns the packet of the arguments.
func (c *explainCmd) packet(env *Env) (p replay.Packet, err error) {
	p.Interface = c.Interface
	if c.Direction == flow.Egress.String() {
		p.Direction = flow.Egress
	}
	text := strings.Join(c.Packet, " ")
	if _, err := os.Stat(c.Packet[0]); len(c.Packet) == 1 && (text == "-" || err == nil || strings.HasSuffix(text, ".pcap") || strings.HasSuffix(text, ".pcapng")) {
		return c.captured(env, p)
	}
	if b, ok := explain.ParseHex(text); ok {
		p.Frame = b
		return p, nil
	}
	m, err := parseMatch(text)
	if err == nil {
		p.Frame, err = explain.Build(m)
	}
	if err != nil {
		return p, withHint(&usageError{err}, "a packet in words, such as 'ipv4 src 1.2.3.4 tcp dport 443'; in hex; or the path of a capture")
	}
	return p, nil
}

// captured returns the packet of the capture with the number of the flag.
func (c *explainCmd) captured(env *Env, p replay.Packet) (replay.Packet, error) {
	f, err := openCapture(env, c.Packet[0])
	if err != nil {
		return p, err
	}
	defer f.Close()
	in, err := capture.Open(f)
	if err != nil {
		return p, fmt.Errorf("%s: %w", c.Packet[0], err)
	}
	for n := uint64(1); ; n++ {
		r, err := in.Next()
		if err == io.EOF {
			return p, usagef("%s: it holds %s, and --number is %d", c.Packet[0], format.Plural(n-1, "packet", "packets"), c.Number)
		}
		if err != nil {
			return p, fmt.Errorf("%s: %w", c.Packet[0], err)
		}
		if n < c.Number {
			continue
		}
		if r.Length > len(r.Data) {
			fmt.Fprintf(env.Stderr, "flowtally: the capture has cut the packet: %d of %d bytes; a header behind the cut counts as incomplete\n", len(r.Data), r.Length)
		}
		p.Frame, p.Layer3 = r.Data, r.Layer3
		if p.Interface == "" {
			p.Interface = r.Interface
		}
		return p, nil
	}
}
