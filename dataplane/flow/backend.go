package flow

import (
	"fmt"
	"slices"
)

// Backend is a component that counts flows.
type Backend string

const (
	Auto Backend = "auto" // RDMA where a device can count the flow, else XDP; no flow is counted by it
	RDMA Backend = "rdma" // flow tables of RDMA NICs
	XDP  Backend = "xdp"  // XDP or TCX programs on network interfaces
	Sim  Backend = "sim"  // a simulation, which needs no kernel and no privilege
)

var backends = [...]Backend{Auto, RDMA, XDP, Sim}

// Backends returns every backend, best first.
func Backends() []Backend { return slices.Clone(backends[:]) }

// Validate reports a word that names no backend. The empty one is valid: it leaves the choice to the
// configuration. The error is a *FieldError.
func (b Backend) Validate() error {
	if cause, fix := b.check(); cause != "" {
		return &FieldError{Field: "backend", Cause: cause, Fix: fix}
	}
	return nil
}

func (b Backend) check() (cause, fix string) {
	if b == "" || slices.Contains(backends[:], b) {
		return "", ""
	}
	words := make([]string, len(backends))
	for i, known := range backends {
		words[i] = string(known)
	}
	if fix = didYouMean(string(b), words); fix == "" {
		fix = "use " + oneOf(words)
	}
	return fmt.Sprintf("%q is no backend", clip(string(b))), fix
}
