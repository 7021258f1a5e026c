package cli

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/cmd/internal/replay"
	"github.com/flowtally/flowtally/dataplane/flow"
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

Bytes are those of the frames when they were captured, layer 2 without FCS, also where the capture has cut them. Exit code 1 when the capture is broken; the counts up to that place are printed.

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
	o := replay.Options{Flows: flows, Interface: c.Interface, Logger: env.Logger}
	if c.Direction == flow.Egress.String() {
		o.Direction = flow.Egress
	}
	in, err := openCapture(env, c.File)
	if err != nil {
		return err
	}
	defer in.Close()
	bar := progress{env: env, in: in, since: time.Now()}
	if isTerminal(env.Stderr) {
		o.Progress = bar.show
	}
	rep, err := replay.Run(env.Context, in, o)
	bar.clear()
	if err != nil {
		return fmt.Errorf("%s: %w", c.File, err)
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
	if rep.Err != nil {
		return withHint(fmt.Errorf("%s: the counts are those of the %s before: %w", c.File, format.Plural(rep.Records.Packets, "record", "records"), rep.Err),
			"capinfos or tcpdump -r names the fault too; take the capture again")
	}
	return nil
}

// capturedFile is a capture that counts the bytes that are read.
type capturedFile struct {
	io.ReadCloser
	size int64 // 0: not known
	read atomic.Int64
}

func (f *capturedFile) Read(p []byte) (int, error) {
	n, err := f.ReadCloser.Read(p)
	f.read.Add(int64(n))
	return n, err
}

// openCapture opens a file, or standard input. The open of a FIFO waits for its writer, or for the end of the
// context.
func openCapture(env *Env, path string) (*capturedFile, error) {
	if path == "-" {
		return &capturedFile{ReadCloser: io.NopCloser(env.Stdin)}, nil
	}
	type opened struct {
		f   *os.File
		err error
	}
	done := make(chan opened, 1)
	go func() {
		f, err := os.Open(path)
		done <- opened{f, err}
	}()
	select {
	case <-env.Context.Done():
		return nil, fmt.Errorf("%s: opening the capture: %w", path, env.Context.Err())
	case o := <-done:
		if o.err != nil {
			return nil, withHint(fmt.Errorf("opening the capture: %w", o.err), "check the path; - is standard input")
		}
		st, err := o.f.Stat()
		if err == nil && st.IsDir() {
			err = usagef("%s: a directory is no capture", path)
		}
		if err != nil {
			o.f.Close()
			return nil, err
		}
		c := &capturedFile{ReadCloser: o.f}
		if st.Mode().IsRegular() {
			c.size = st.Size()
		}
		return c, nil
	}
}

// progress is a line on a terminal, drawn over at most ten times a second.
type progress struct {
	env         *Env
	in          *capturedFile
	since, last time.Time
}

func (p *progress) show(records uint64) {
	now := time.Now()
	if now.Sub(p.last) < 100*time.Millisecond {
		return
	}
	p.last = now
	read := p.in.read.Load()
	fmt.Fprint(p.env.Stderr, "\r"+format.Progress(read, p.in.size)+fmt.Sprintf("  %s records, %s/s", format.Count(records),
		format.Rate(float64(records)/now.Sub(p.since).Seconds()))+format.ClearLine)
}

func (p *progress) clear() {
	if !p.last.IsZero() {
		fmt.Fprint(p.env.Stderr, "\r"+format.ClearLine)
	}
}
