package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/flowtally/flowtally/cmd/internal/explain"
	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/cmd/internal/replay"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
)

// explainCmd says which flow counts a packet, and why.
type explainCmd struct {
	outputFlag
	flowsFlag
	Direction  string   `help:"Side of the interface on which the packet is seen: ${enum}." enum:"ingress,egress" default:"ingress"`
	Interface  string   `help:"Interface on which the packet is seen, for flows of one interface." complete:"interfaces" placeholder:"NAME"`
	Number     uint64   `help:"Of a capture: the number of the packet." default:"1" placeholder:"N"`
	Classifier bool     `help:"Print the classifier that is chosen for the flows, and its cost, in place of a packet's decision."`
	Packet     []string `arg:"" optional:"" help:"The packet: in the words of a match, in hex, or a capture (pcap, pcapng; - is standard input)."`
}

// Help is shown by explain --help.
func (*explainCmd) Help() string {
	return `Decides the packet by the classifier, the BPF program that counts on an interface (BPF_PROG_TEST_RUN), and compares it with the linear matcher, which shares no code with it. Lists the flows in the order in which they win: the flow that counts the packet, the flows that match but are shadowed by it, and of every other flow the first field that differs. Where the machine cannot load BPF, the linear matcher decides alone, and a message says so.

A packet in words has one value for each field; fields that are left out have common values. A port range or a prefix is no packet.

With --classifier no packet is given: the command prints which masks are hashed, the rules in trees, the reason, the expected cost of a packet, and the cost of the classifiers that were not chosen. It computes them without BPF and without privilege.

Examples:

  flowtally explain ipv4 src 1.2.3.4 dst 10.0.0.1 tcp dport 443

  flowtally explain 'vlan id 100 ipv6 udp dport 53' --config /etc/flowtally.yaml

  flowtally explain traffic.pcap --number 17 --flow 'web: tcp dport 443' -o json

  flowtally explain --classifier --config /etc/flowtally.yaml`
}

func (c *explainCmd) Run(env *Env) error {
	if c.Classifier {
		return c.classifier(env)
	}
	if len(c.Packet) == 0 {
		return usagef("no packet: it is given in words, in hex, or as a capture; --classifier needs none")
	}

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

	for _, note := range x.Notes() {
		fmt.Fprintf(env.Stderr, "flowtally: %s\n", format.PrintableLines(note))
	}
	if c.json() {
		return x.PrintJSON(env.Stdout, ordered)
	}
	return x.Print(env.Stdout)
}

// classifier prints the classifier of the flows.
func (c *explainCmd) classifier(env *Env) error {
	if len(c.Packet) > 0 {
		return usagef("--classifier is about all packets: leave %q out", strings.Join(c.Packet, " "))
	}
	flows, _, err := c.flows(env)
	if err != nil {
		return err
	}

	// Explain even a set of flows that costs too much to start with: plan it without the limit, and print the cost beside
	// the limit.
	p, err := await(env.Context, func() (*xdp.Plan, error) {
		return engine.Plan(dataplane.Config{Flows: flows, XDP: dataplane.XDPConfig{WorstCost: dataplane.MostWorstCost}})
	})
	if err != nil {
		return fmt.Errorf("computing the classifier: %w", err)
	}
	p.Cost.Bound = dataplane.DefaultWorstCost

	if c.json() {
		return explain.PrintClassifierJSON(env.Stdout, len(flows), p)
	}
	return explain.PrintClassifier(env.Stdout, len(flows), p)
}

// packet returns the packet described by the arguments: a path of a capture, hex, or the words of a match.
func (c *explainCmd) packet(env *Env) (p replay.Packet, err error) {
	p.Direction = direction(c.Direction)
	p.Interface = c.Interface

	text := strings.Join(c.Packet, " ")
	if len(c.Packet) == 1 && explain.IsCapture(text) {
		err = c.captured(env, text, &p)
		return p, err
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

// captured fills p with packet --number of a capture.
func (c *explainCmd) captured(env *Env, path string, p *replay.Packet) error {
	f, err := openCapture(env, path)
	if err != nil {
		return err
	}
	defer f.Close()

	cut, err := explain.Captured(f, c.Number, p)
	switch {
	case errors.Is(err, explain.ErrNumber):
		return withHint(usagef("%s: %w", path, err), "a smaller --number; the first packet of a capture is 1")
	case err != nil:
		return hintCapture(fmt.Errorf("%s: %w", path, err))
	}
	if cut > 0 {
		fmt.Fprintf(env.Stderr, "flowtally: the capture has cut %s off the packet; a header behind the cut counts as incomplete\n", format.Plural(uint64(cut), "byte", "bytes"))
	}
	return nil
}
