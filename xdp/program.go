package xdp

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Lengths of the frames that [Program.Run] takes. The kernel refuses shorter ones, because no driver delivers them. Its own limit
// is above MaxRun.
const (
	MinRun = 14
	MaxRun = 64 << 10
)

// Program is the classifier on no hook: BPF_PROG_TEST_RUN runs it over frames of the caller. It counts on the counters of its rule
// set. Its constants are those of the time when it was loaded, so it may not find later rules.
type Program struct {
	prog *ebpf.Program
	opts ebpf.RunOptions
}

// Load loads the program that would run on a hook of the interface with the number port. 0 is no interface. For HookEgress it
// loads the XDP program with the constants of egress: a frame of the caller has nothing beside it, and BPF_PROG_TEST_RUN
// refuses frames with cut IP headers in socket buffers.
func (dp *Datapath) Load(port uint16, h Hook, layer3 bool) (*Program, error) {
	if err := dp.enter(); err != nil {
		return nil, err
	}
	defer dp.mu.Unlock()
	p, err := dp.loader.loadNamed(dp.constants, site{hookKey: hookKey{port, h}, layer3: layer3}, dp.loader.programName(false))
	if err != nil {
		return nil, fmt.Errorf("loading the classifier: %w", err)
	}
	return &Program{prog: p}, nil
}

// Run decides a frame of MinRun to MaxRun bytes, and counts it once if a rule matches. drop: the rule drops. One goroutine at a
// time may call it.
func (p *Program) Run(frame []byte) (drop bool, err error) {
	p.opts.Data = frame
	verdict, err := p.prog.Run(&p.opts)
	if err != nil {
		return false, fmt.Errorf("running the classifier over a frame of %d bytes: %w", len(frame), explain(err))
	}
	switch verdict {
	case verdictPass:
		return false, nil
	case verdictDrop:
		return true, nil
	}
	return false, fmt.Errorf("running the classifier over a frame of %d bytes: %w: verdict %d", len(frame), errVerdict, verdict)
}

// Close unloads the program. Its counts stay in the datapath.
func (p *Program) Close() error { return p.prog.Close() }

// Verdicts of an XDP program (linux/bpf.h).
const (
	verdictDrop = 1
	verdictPass = 2
)

var errVerdict = errors.New("a verdict that the program does not have")
