package flow

import (
	"fmt"
	"slices"
)

// Backend is a component that counts flows.
type Backend string

const (
	Auto Backend = "auto" // RDMA if a device can count the flow, else XDP
	RDMA Backend = "rdma" // flow tables of RDMA NICs
	XDP  Backend = "xdp"  // XDP or TCX programs on network interfaces
	Sim  Backend = "sim"  // made-up counts, for tests and demos; needs no privilege
)

var backends = [...]Backend{Auto, RDMA, XDP, Sim}

// Backends returns every valid backend, [Auto] first.
func Backends() []Backend { return slices.Clone(backends[:]) }

// Validate returns a *FieldError if b is not a known backend. The empty Backend is valid.
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
