package ibv

import (
	"fmt"
	"syscall"

	"github.com/flowtally/flowtally/probe"
)

// CompCntrMemory is memory in which a device counts. Each word has eight bytes in host order, at a
// multiple of 8. If a word is nil, the library provides it.
//
// The memory must be a mapping of the caller, never part of the Go heap. Keep it mapped until the counter
// is closed, or until the [Context] is closed if closing the counter fails. The device may write at any
// time; nobody else should.
type CompCntrMemory struct {
	Comp []byte // operations that completed
	Err  []byte // operations that completed in error
}

const featureExternal = "completion counters in memory of the caller's"

// wordSize is the size in bytes of a counter's value in memory.
const wordSize = 8

// initExternal makes a counter in memory of the caller, by efadv_create_comp_cntr.
func (k *CompCntr) initExternal(o CompCntrOptions) error {
	const verb = "efadv_create_comp_cntr"
	c := k.ctx
	for _, word := range [][]byte{o.External.Comp, o.External.Err} {
		if word != nil && len(word) != wordSize {
			return fmt.Errorf("%w: a counter's word has %d bytes, not %d", c.err(verb, syscall.EINVAL), wordSize, len(word))
		}
	}

	loading := c.lib.opts.begin(c.device, "dlopen of libefa")
	lib, err := loadEFA(c.lib.opts, featureExternal)
	loading.end()
	if err != nil {
		return err
	}

	// Libibverbs is a parent of its own: an abandoned counter may still need its code after the context is
	// closed.
	err = k.init("completion counter", c.device, func() (handle, error) {
		if !c.v.hasCompCntrs() {
			return 0, &probe.UnsupportedError{
				Feature: featureExternal,
				Object:  c.device,
				Reason:  "libibverbs has no completion counters",
				Fix:     "use libibverbs and libefa of one release, rdma-core 65 or later",
			}
		}
		defer c.lib.opts.begin(c.device, verb).end()
		h, errno := lib.createCompCntr(c.h, o.Type, *o.External)
		return h, c.err(verb, errno)
	}, &c.object, &c.lib.object)
	if err != nil {
		lib.unload()
		return err
	}
	k.efa = lib
	return nil
}
