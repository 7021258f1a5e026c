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
	MaxValue             uint64 // a counter goes to 0 past it
	MaxCounters          uint32
	SupportedQPAttachOps CompCntrOps // of one queue pair
}

// CompCntrType is enum ibv_comp_cntr_type: the amount that a counter adds per completion.
type CompCntrType uint32

// The types. EFA has the first alone.
const (
	CompCntrTypeWRs   CompCntrType = iota // 1, per work request
	CompCntrTypeBytes                     // the request's bytes
)

func (t CompCntrType) String() string { return name("completion counter type", t, "WRS", "BYTES") }

// CompCntrOps is a set of enum ibv_qp_attach_comp_cntr_op: the operations whose completions a
// counter counts.
type CompCntrOps uint32

// The operations. A remote operation is one that the peer starts on this queue pair. It has no
// completion here, and on EFA no error either.
const (
	QPAttachCompCntrOpSend CompCntrOps = 1 << iota
	QPAttachCompCntrOpRecv
	QPAttachCompCntrOpRDMARead
	QPAttachCompCntrOpRemoteRDMARead
	QPAttachCompCntrOpRDMAWrite
	QPAttachCompCntrOpRemoteRDMAWrite
)

// The names of the draft of 2026-02-09 (reference 003), which no release has: there the enum
// is ibv_comp_cntr_attach_op, and the struct that rdma-core 65 calls
// ibv_qp_attach_comp_cntr_attr is ibv_comp_cntr_attach_attr. Bits and layout are the same.
const (
	CompCntrAttachOpSend            = QPAttachCompCntrOpSend
	CompCntrAttachOpRecv            = QPAttachCompCntrOpRecv
	CompCntrAttachOpRDMARead        = QPAttachCompCntrOpRDMARead
	CompCntrAttachOpRemoteRDMARead  = QPAttachCompCntrOpRemoteRDMARead
	CompCntrAttachOpRDMAWrite       = QPAttachCompCntrOpRDMAWrite
	CompCntrAttachOpRemoteRDMAWrite = QPAttachCompCntrOpRemoteRDMAWrite
)

// String lists the names as verbs.h spells them, without their common prefix.
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

// QueryCompCntrCaps asks for the device's completion counters (rdma-core 65, IBVERBS_1.18).
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
	MaxValue uint64          // the largest value that must fit; a device with smaller counters refuses
	External *CompCntrMemory // the device counts here; EFA alone
}

// CompCntr is a completion counter: two values, of operations that completed and of those
// that completed in error. It begins at 0. Past CompCntrCaps.MaxValue a value goes on at 0.
type CompCntr struct {
	object
	ctx *Context
	efa efa // the library that made the counter, for memory of the caller's; nil otherwise
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

// initInLibrary makes a counter that counts in memory of the library.
func (k *CompCntr) initInLibrary(o CompCntrOptions) error {
	c := k.ctx
	return k.init("completion counter", c.device, func() (handle, error) {
		h, errno := c.v.createCompCntr(c.h, 0, o.Type, 0)
		return h, c.err("ibv_create_comp_cntr", errno)
	}, &c.object)
}

// checkMaxValue refuses a device whose counters go to 0 before value.
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

// Set sets the number of completions. Reads may show the old value for a moment, and completions in
// that moment may be lost: the manual asks for a counter at rest.
func (k *CompCntr) Set(value uint64) error { return k.set(wordComp, "ibv_set_comp_cntr", value) }

// SetErr sets the number of errors, as Set does.
func (k *CompCntr) SetErr(value uint64) error { return k.set(wordErr, "ibv_set_err_comp_cntr", value) }

func (k *CompCntr) set(word compCntrWord, verb string, value uint64) error {
	return k.call(verb, func(h handle) syscall.Errno { return k.ctx.v.setCompCntr(h, word, value) })
}

// Inc adds to the number of completions. It may take a moment until it is read.
func (k *CompCntr) Inc(amount uint64) error { return k.inc(wordComp, "ibv_inc_comp_cntr", amount) }

// IncErr adds to the number of errors, as Inc does.
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

// Read returns the number of completions. On EFA it is a load from memory, not a command: on a lost
// device it returns the last value, without an error. It allocates nothing.
func (k *CompCntr) Read() (uint64, error) { return k.read(wordComp, "ibv_read_comp_cntr") }

// ReadErr returns the number of errors. The two values are not of one moment.
func (k *CompCntr) ReadErr() (uint64, error) { return k.read(wordErr, "ibv_read_err_comp_cntr") }

func (k *CompCntr) read(word compCntrWord, verb string) (uint64, error) {
	if err := k.use(); err != nil {
		return 0, err
	}
	defer k.done()

	value, errno := k.ctx.v.readCompCntr(k.h, word)
	return value, k.ctx.err(verb, errno)
}

// AttachCompCntr makes the counter count these operations of the queue pair from now on. The queue
// pair must be in state RESET or INIT (else EINVAL), no other counter of the queue pair may count
// the operations (else EBUSY), and CompCntrCaps must name them (else ENOTSUP). A counter adds up
// all attached queue pairs. Only the queue pair's Close detaches it; until then the queue pair
// holds the counter. Completion queues still get their completions, and must be polled.
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

// explainAttach adds the manual's reason for the errno, as far as it can be determined.
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

// Close destroys the counter. Queue pairs that it is attached to hold it.
func (k *CompCntr) Close() error {
	return k.close(func(h handle) error {
		if err := k.ctx.err("ibv_destroy_comp_cntr", k.ctx.v.destroyCompCntr(h)); err != nil {
			return err // libefa stays loaded: the counter may live on there
		}
		if k.efa != nil {
			k.efa.unload()
		}
		return nil
	})
}
