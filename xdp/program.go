package xdp

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Limits of a frame for [Program.Run]. The kernel refuses shorter frames, because no driver delivers them. It would accept longer
// ones.
const (
	MinRun = 14
	MaxRun = 64 << 10
)

// Program is a classifier without a hook. Run feeds it frames from memory, by BPF_PROG_TEST_RUN, and it counts them like packets. A
// program may not find rules added after it was loaded, nor elements of a set that has grown since: load another one.
type Program struct {
	prog *ebpf.Program
	opts ebpf.RunOptions
}

// Load loads the program that would run on a hook of the interface with the number port, or on no interface if port is 0.
//
// For HookEgress it loads an XDP program that decides like the TCX program. Socket buffers would bring nothing here, and
// BPF_PROG_TEST_RUN refuses frames with a truncated IP header in them.
func (dp *Datapath) Load(port uint16, h Hook, layer3 bool) (*Program, error) {
	if err := dp.enter(); err != nil {
		return nil, err
	}
	defer dp.mu.Unlock()
	at := site{hookKey: hookKey{port, h}, layer3: layer3}
	p, err := dp.loader.loadNamed(dp.constants, at, dp.loader.programName(dp.constants, at))
	if err != nil {
		return nil, fmt.Errorf("loading the classifier: %w", err)
	}
	return &Program{prog: p}, nil
}

// Run classifies a frame of MinRun to MaxRun bytes. If a rule matches, the frame is counted once. drop reports whether the rule
// drops it. Run must not be called concurrently.
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

// Close unloads the program. The datapath keeps its counts.
func (p *Program) Close() error { return p.prog.Close() }

// Verdicts of an XDP program (linux/bpf.h).
const (
	verdictDrop = 1
	verdictPass = 2
)

var errVerdict = errors.New("unexpected verdict")
