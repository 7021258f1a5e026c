package ibv

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/flowtally/flowtally/probe"
)

// efa is the part of libefa used by this package. libefa has no functions to destroy its objects: use
// verbs.destroyCompCntr and verbs.destroyQP.
type efa interface {
	unload()
	createCompCntr(ctx handle, typ CompCntrType, mem CompCntrMemory) (handle, syscall.Errno)
	queryDevice(ctx handle) (EFAAttr, syscall.Errno)
	createSRD(ctx, pd, sendCQ, recvCQ handle, o *QPOptions) (qp handle, number uint32, errno syscall.Errno)
}

const featureSRD = "SRD queue pairs"

// EFAAttr is the part of struct efadv_device_attr for SRD queue pairs: which operations they have.
type EFAAttr struct {
	RDMARead    bool
	RDMAWrite   bool
	MaxRDMASize uint32 // bytes of one operation
}

// QueryEFA reads the attributes of an EFA device by efadv_query_device(3). It returns a
// [probe.UnsupportedError] if there is no libefa, or if the device is no EFA.
func (c *Context) QueryEFA() (EFAAttr, error) {
	if err := c.use(); err != nil {
		return EFAAttr{}, err
	}
	defer c.done()

	lib, err := c.loadSRD()
	if err != nil {
		return EFAAttr{}, err
	}
	defer lib.unload()

	const verb = "efadv_query_device"
	defer c.lib.opts.begin(c.device, verb).end()
	a, errno := lib.queryDevice(c.h)
	return a, c.srdErr(verb, errno)
}

// loadSRD opens libefa for SRD queue pairs.
func (c *Context) loadSRD() (efa, error) {
	defer c.lib.opts.begin(c.device, "dlopen of libefa").end()
	return loadEFA(c.lib.opts, featureSRD)
}

// srdErr is Context.err, but adds a next step if libefa refuses a device with EOPNOTSUPP: the device is
// another provider's then.
func (c *Context) srdErr(verb string, errno syscall.Errno) error {
	err := c.err(verb, errno)
	if !errors.Is(err, probe.ErrNotSupported) {
		return err
	}
	return fmt.Errorf("%w: %w", &probe.UnsupportedError{
		Feature: featureSRD,
		Object:  c.device,
		Reason:  "libefa does not offer them on this device",
		Fix:     "name an EFA device, or use a queue pair of type RC or UD",
	}, err)
}

// createSRD makes the queue pair by efadv_create_qp_ex. libefa stays open until q is closed.
func (q *QP) createSRD(o *QPOptions) (handle, error) {
	lib, err := q.ctx.loadSRD()
	if err != nil {
		return 0, err
	}

	const verb = "efadv_create_qp_ex"
	defer q.ctx.lib.opts.begin(q.ctx.device, verb).end()
	h, number, errno := lib.createSRD(q.ctx.h, q.pd.h, o.SendCQ.h, o.RecvCQ.h, o)
	if errno != 0 {
		lib.unload()
		return 0, q.ctx.srdErr(verb, errno)
	}

	q.efa = lib
	q.number = number
	return h, nil
}
