package lab

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// AttachNeighbour attaches a program of another owner, which returns verdict for each packet, to a TCX hook of e. place is
// its place in the chain. The caller closes the link, which detaches the program.
func (e *End) AttachNeighbour(at ebpf.AttachType, verdict int32, place link.Anchor) (link.Link, error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name:         "neighbour",
		Type:         ebpf.SchedCLS,
		License:      "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm32(asm.R0, verdict), asm.Return()},
	})
	if err != nil {
		return nil, fmt.Errorf("loading the program of a neighbour: %w", err)
	}

	var l link.Link
	err = e.NS.Do(func() (err error) {
		l, err = link.AttachTCX(link.TCXOptions{
			Interface: e.Index,
			Program:   p,
			Attach:    at,
			Anchor:    place,
		})
		return err
	})
	if err := errors.Join(err, p.Close()); err != nil { // the link keeps the program loaded
		return nil, fmt.Errorf("attaching a neighbour to %s: %w", e.Name, err)
	}
	return l, nil
}
