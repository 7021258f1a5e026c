package xdp

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/xdp"
)

// Classifier classifies frames with the programs that count packets, but without an interface: it runs them with
// BPF_PROG_TEST_RUN. Explain and replay use it. It has unpinned tables of its own, so it can run beside an instance.
//
// Only one goroutine at a time may call its methods. Callers must close it.
type Classifier struct {
	rules    *xdp.Datapath
	ports    map[string]uint16 // by interface; only of interfaces that a flow names
	counters []uint32          // of the flows, in their order
	programs map[site]*xdp.Program

	// Scratch of Decide and Read.
	before []xdp.Pair
	after  []xdp.Pair
}

// Side says where a frame is seen. Interface may be empty: then only flows without an interface match.
type Side struct {
	Interface string
	Direction flow.Direction
	Layer3    bool // the frame begins with IP
}

// site is where a program runs. Each has a program of its own.
type site struct {
	port   uint16
	hook   xdp.Hook
	layer3 bool
}

// Frames must have MinFrame to MaxFrame bytes, because BPF_PROG_TEST_RUN refuses others.
const (
	MinFrame = xdp.MinRun
	MaxFrame = xdp.MaxRun
)

// NewClassifier loads flows. Between equal priorities the first in the list wins.
func NewClassifier(flows []flow.Flow, log *slog.Logger) (*Classifier, error) {
	c := &Classifier{ports: map[string]uint16{}, programs: map[site]*xdp.Program{}}
	n := max(1, len(flows))
	rules, err := c.compile(flows, log, n)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if err := c.rules.Add(rules...); err != nil {
		return nil, errors.Join(fmt.Errorf("loading %d flows: %w", len(flows), translate(err)), c.Close())
	}
	c.before = make([]xdp.Pair, len(flows))
	c.after = make([]xdp.Pair, len(flows))
	return c, nil
}

// compile opens tables with n counters and returns the rules of flows. The caller adds all of them at once, as each call of Add
// builds the trees.
func (c *Classifier) compile(flows []flow.Flow, log *slog.Logger, n int) (rules []xdp.Rule, err error) {
	if c.rules, err = xdp.Open(xdp.Options{MaxRules: max(1<<16, 8*n), MaxCounters: n, Logger: log}); err != nil {
		return nil, translate(err)
	}
	for i, f := range flows {
		counter, err := c.rules.AllocCounter(fmt.Sprint(i))
		if err != nil {
			return nil, translate(err)
		}
		c.counters = append(c.counters, counter.ID)
		r, err := compile(backend.Placed{Flow: f, Order: uint32(i)}, counter.ID, c.port)
		if err != nil {
			return nil, fmt.Errorf("flow %q: %w", f.Name, translate(err))
		}
		rules = append(rules, r...)
	}
	return rules, nil
}

func (c *Classifier) port(ifname string) (uint16, error) {
	n, err := c.rules.Port(ifname)
	if err == nil {
		c.ports[ifname] = n
	}
	return n, err
}

// program returns the program for a side. The first call for a side loads it.
func (c *Classifier) program(at Side) (*xdp.Program, error) {
	s := site{c.ports[at.Interface], xdp.HookIngress, at.Layer3}
	if at.Direction == flow.Egress {
		s.hook = xdp.HookEgress
	}
	p, ok := c.programs[s]
	if !ok {
		var err error
		if p, err = c.rules.Load(s.port, s.hook, s.layer3); err != nil {
			return nil, translate(err)
		}
		c.programs[s] = p
	}
	return p, nil
}

// Count counts a frame, for example of a capture. Read returns the totals.
func (c *Classifier) Count(frame []byte, at Side) error {
	p, err := c.program(at)
	if err != nil {
		return err
	}
	_, err = p.Run(frame)
	return translate(err)
}

// Decide counts a frame and returns the index of the flow that has counted it, or -1. drop reports whether the program drops the
// frame. Decide reads the counters of all flows before and after, so for many frames Count is far cheaper.
func (c *Classifier) Decide(frame []byte, at Side) (index int, drop bool, err error) {
	p, err := c.program(at)
	if err != nil {
		return -1, false, err
	}
	if err := c.rules.Read(c.counters, c.before); err != nil {
		return -1, false, translate(err)
	}
	if drop, err = p.Run(frame); err != nil {
		return -1, false, translate(err)
	}
	if err := c.rules.Read(c.counters, c.after); err != nil {
		return -1, false, translate(err)
	}
	index = -1
	for i := range c.after {
		if c.after[i] == c.before[i] {
			continue
		}
		if index >= 0 {
			return -1, drop, fmt.Errorf("a frame of %d bytes was counted by flow %d and by flow %d", len(frame), index, i)
		}
		index = i
	}
	return index, drop, nil
}

// Read fills packets and bytes with the counts of the flows, in the order of NewClassifier.
func (c *Classifier) Read(packets, bytes []uint64) error {
	if err := c.rules.Read(c.counters, c.after); err != nil {
		return translate(err)
	}
	for i, p := range c.after {
		packets[i] = p.Packets
		bytes[i] = p.Bytes
	}
	return nil
}

// Close unloads the programs and frees the tables. Idempotent.
func (c *Classifier) Close() error {
	var errs []error
	for s, p := range c.programs {
		errs = append(errs, p.Close())
		delete(c.programs, s)
	}
	if c.rules != nil {
		errs = append(errs, c.rules.Destroy())
		c.rules = nil
	}
	return errors.Join(errs...)
}
