package ibv

import (
	"fmt"
	"math/bits"
	"strings"
	"syscall"

	"github.com/flowtally/flowtally/probe"
)

// CompCntrCaps is struct ibv_comp_cntr_caps: the limits of the device's completion counters.
type CompCntrCaps struct {
	MaxValue             uint64 // a counter wraps to 0 past this value
	MaxCounters          uint32
	SupportedQPAttachOps CompCntrOps // of one queue pair
}

// CompCntrType is enum ibv_comp_cntr_type: the amount added per completion.
type CompCntrType uint32

// The types. EFA has only the first.
const (
	CompCntrTypeWRs   CompCntrType = iota // 1, per work request
	CompCntrTypeBytes                     // the request's bytes
)

func (t CompCntrType) String() string { return name("completion counter type", t, "WRS", "BYTES") }

// CompCntrOps is a set of enum ibv_qp_attach_comp_cntr_op: the operations counted by a counter.
type CompCntrOps uint32

// The operations. The peer starts remote operations on this queue pair. They have no completion here,
// and on EFA they count no errors either.
const (
	QPAttachCompCntrOpSend CompCntrOps = 1 << iota
	QPAttachCompCntrOpRecv
	QPAttachCompCntrOpRDMARead
	QPAttachCompCntrOpRemoteRDMARead
	QPAttachCompCntrOpRDMAWrite
	QPAttachCompCntrOpRemoteRDMAWrite
)

// The names of the draft of 2026-02-09 (reference 003), which were never released. The draft has the enum
// ibv_comp_cntr_attach_op and the struct ibv_comp_cntr_attach_attr. rdma-core 65 calls the struct
// ibv_qp_attach_comp_cntr_attr. Bits and layout did not change.
const (
	CompCntrAttachOpSend            = QPAttachCompCntrOpSend
	CompCntrAttachOpRecv            = QPAttachCompCntrOpRecv
	CompCntrAttachOpRDMARead        = QPAttachCompCntrOpRDMARead
	CompCntrAttachOpRemoteRDMARead  = QPAttachCompCntrOpRemoteRDMARead
	CompCntrAttachOpRDMAWrite       = QPAttachCompCntrOpRDMAWrite
	CompCntrAttachOpRemoteRDMAWrite = QPAttachCompCntrOpRemoteRDMAWrite
)

// String returns the names of verbs.h without their common prefix, for example "SEND|RDMA_READ".
func (o CompCntrOps) String() string {
	names := [...]string{"SEND", "RECV", "RDMA_READ", "REMOTE_RDMA_READ", "RDMA_WRITE", "REMOTE_RDMA_WRITE"}
	var set []string
	for rest := uint32(o); rest != 0; rest &= rest - 1 {
		if bit := bits.TrailingZeros32(rest); bit < len(names) {
			set = append(set, names[bit])
		} else {
			set = append(set, fmt.Sprintf("1<<%d", bit))
		}
	}
	return strings.Join(set, "|")
}

// QueryCompCntrCaps reads the limits of the device's completion counters. It needs rdma-core 65
// (IBVERBS_1.18).
func (c *Context) QueryCompCntrCaps() (CompCntrCaps, error) {
	if err := c.use(); err != nil {
		return CompCntrCaps{}, err
	}
	defer c.done()

	caps, errno := c.v.queryCompCntrCaps(c.h)
	return caps, c.err("ibv_query_comp_cntr_caps", errno)
}

// CompCntrOptions is struct ibv_comp_cntr_init_attr. The zero value counts work requests in
// memory of the library.
type CompCntrOptions struct {
	Type     CompCntrType
	MaxValue uint64          // the largest value that the counter must represent; 0: any
	External *CompCntrMemory // where the device counts, on EFA only; nil: in memory of the library
}

// CompCntr is a completion counter. It has two values, for completed operations and for operations
// completed in error. Both begin at 0, and wrap to 0 past CompCntrCaps.MaxValue.
type CompCntr struct {
	object
	ctx *Context
	efa efa // the library that made a counter in memory of the caller; otherwise nil
}

// CreateCompCntr makes a completion counter. If the library or the device has no completion
// counters, the error satisfies probe.ErrNotSupported.
func (c *Context) CreateCompCntr(o CompCntrOptions) (*CompCntr, error) {
	if err := c.checkMaxValue(o.MaxValue); err != nil {
		return nil, err
	}

	k := &CompCntr{ctx: c}
	initialize := k.initInLibrary
	if o.External != nil {
		initialize = k.initExternal
	}
	if err := initialize(o); err != nil {
		return nil, err
	}
	return k, nil
}

// initInLibrary makes a counter in memory of the library.
func (k *CompCntr) initInLibrary(o CompCntrOptions) error {
	c := k.ctx
	return k.init("completion counter", c.device, func() (handle, error) {
		h, errno := c.v.createCompCntr(c.h, 0, o.Type, 0)
		return h, c.err("ibv_create_comp_cntr", errno)
	}, &c.object)
}

// checkMaxValue returns an error if the device's counters wrap before value.
func (c *Context) checkMaxValue(value uint64) error {
	if value == 0 {
		return nil
	}
	caps, err := c.QueryCompCntrCaps()
	if err != nil || caps.MaxValue >= value {
		return err
	}
	return &probe.UnsupportedError{
		Feature: fmt.Sprintf("completion counters up to %d", value),
		Object:  c.device,
		Reason:  fmt.Sprintf("they go to 0 past %d", caps.MaxValue),
		Fix:     "read them before they do, and add up",
	}
}

// Set sets the number of completions. For a moment, reads may still return the old value, and completions
// may get lost. Use it while nothing completes, as the manual asks.
func (k *CompCntr) Set(value uint64) error { return k.set(wordComp, "ibv_set_comp_cntr", value) }

// SetErr sets the number of errors. See Set.
func (k *CompCntr) SetErr(value uint64) error { return k.set(wordErr, "ibv_set_err_comp_cntr", value) }

func (k *CompCntr) set(word compCntrWord, verb string, value uint64) error {
	return k.call(verb, func(h handle) syscall.Errno { return k.ctx.v.setCompCntr(h, word, value) })
}

// Inc adds to the number of completions. Reads may return the old value for a moment.
func (k *CompCntr) Inc(amount uint64) error { return k.inc(wordComp, "ibv_inc_comp_cntr", amount) }

// IncErr adds to the number of errors. See Inc.
func (k *CompCntr) IncErr(amount uint64) error {
	return k.inc(wordErr, "ibv_inc_err_comp_cntr", amount)
}

func (k *CompCntr) inc(word compCntrWord, verb string, amount uint64) error {
	return k.call(verb, func(h handle) syscall.Errno { return k.ctx.v.incCompCntr(h, word, amount) })
}

// call runs one verb on the open counter.
func (k *CompCntr) call(verb string, fn func(handle) syscall.Errno) error {
	if err := k.use(); err != nil {
		return err
	}
	defer k.done()

	return k.ctx.err(verb, fn(k.h))
}

// Read returns the number of completions. It allocates nothing. On EFA it only loads from memory, so
// after the device is lost it returns the last value without an error.
func (k *CompCntr) Read() (uint64, error) { return k.read(wordComp, "ibv_read_comp_cntr") }

// ReadErr returns the number of errors. There is no way to read both values at one moment.
func (k *CompCntr) ReadErr() (uint64, error) { return k.read(wordErr, "ibv_read_err_comp_cntr") }

func (k *CompCntr) read(word compCntrWord, verb string) (uint64, error) {
	if err := k.use(); err != nil {
		return 0, err
	}
	defer k.done()

	value, errno := k.ctx.v.readCompCntr(k.h, word)
	return value, k.ctx.err(verb, errno)
}

// AttachCompCntr makes the counter count these operations of the queue pair from now on. A counter may be
// attached to several queue pairs, and adds them up.
//
// The queue pair must be in state RESET or INIT (otherwise EINVAL). No other counter of the queue pair
// may count any of the operations (EBUSY). The device must offer them in CompCntrCaps (ENOTSUP).
//
// The queue pair holds the counter until it is closed, which is the only way to detach the counter.
// Callers must still poll the completion queue: it gets all completions as before.
func (q *QP) AttachCompCntr(k *CompCntr, ops CompCntrOps) error {
	if err := q.use(); err != nil {
		return err
	}
	defer q.done()
	if err := k.use(); err != nil {
		return err
	}
	defer k.done()

	const verb = "ibv_qp_attach_comp_cntr"
	if k.ctx != q.ctx {
		return fmt.Errorf("%w: the counter is of another context of %s", q.ctx.err(verb, syscall.EINVAL), k.device)
	}
	if errno := q.ctx.v.attachCompCntr(q.h, k.h, 0, ops); errno != 0 {
		return q.explainAttach(q.ctx.err(verb, errno), errno, ops)
	}
	q.adopt(&k.object)
	return nil
}

// explainAttach adds the manual's reason for the errno, if we can find it out.
func (q *QP) explainAttach(err error, errno syscall.Errno, ops CompCntrOps) error {
	switch errno {
	case syscall.EBUSY:
		return fmt.Errorf("%w: another counter of the queue pair has some of %v", err, ops)
	case syscall.EOPNOTSUPP:
		if caps, errno := q.ctx.v.queryCompCntrCaps(q.ctx.h); errno == 0 && ops&^caps.SupportedQPAttachOps != 0 {
			return fmt.Errorf("%w: the device has no counters of %v", err, ops&^caps.SupportedQPAttachOps)
		}
	case syscall.EINVAL:
		if ops == 0 {
			return fmt.Errorf("%w: no operation is named", err)
		}
		if now, errno := q.ctx.v.queryQP(q.h, QPAttrState); errno == 0 && now.State != QPSReset && now.State != QPSInit {
			return fmt.Errorf("%w: the queue pair is in state %v: attach counters in RESET or INIT", err, now.State)
		}
	}
	return err
}

// Close destroys the counter. Attached queue pairs hold it: close them first.
func (k *CompCntr) Close() error {
	return k.close(func(h handle) error {
		if err := k.ctx.err("ibv_destroy_comp_cntr", k.ctx.v.destroyCompCntr(h)); err != nil {
			return err // do not unload libefa, which may still use the counter
		}
		if k.efa != nil {
			k.efa.unload()
		}
		return nil
	})
}
