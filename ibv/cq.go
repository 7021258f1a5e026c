package ibv

import "sync"

// CQOptions is the size of a completion queue.
type CQOptions struct {
	CQE        int // entries at least; 0: 16
	CompVector int
}

// CQ is a completion queue.
type CQ struct {
	object
	ctx *Context
	cqe int

	direct sync.Mutex
	mlx5   mlx5 // the library that MLX5Ring used; nil before the first call
}

// WC is struct ibv_wc: a work completion.
type WC struct {
	WRID             uint64
	Status           WCStatus
	Opcode           WCOpcode // valid when Status is WCSuccess
	VendorErr        uint32
	ByteLen          uint32
	ImmData          uint32 // host order; the invalidated rkey if Flags has the bit
	QPNum, SrcQP     uint32
	Flags            uint32
	PKeyIndex, SLID  uint16
	SL, DLIDPathBits uint8
}

// WCStatus is enum ibv_wc_status.
type WCStatus uint32

// The statuses; any other than WCSuccess is an error.
const (
	WCSuccess WCStatus = iota
	WCLocLenErr
	WCLocQPOpErr
	WCLocEECOpErr
	WCLocProtErr
	WCWRFlushErr
	WCMWBindErr
	WCBadRespErr
	WCLocAccessErr
	WCRemInvReqErr
	WCRemAccessErr
	WCRemOpErr
	WCRetryExcErr
	WCRNRRetryExcErr
	WCLocRDDViolErr
	WCRemInvRDReqErr
	WCRemAbortErr
	WCInvEECNErr
	WCInvEECStateErr
	WCFatalErr
	WCRespTimeoutErr
	WCGeneralErr
	WCTMErr
	WCTMRndvIncomplete
)

func (s WCStatus) String() string {
	return name("status", s, "success", "local length error", "local QP operation error", "local EE context operation error",
		"local protection error", "work request flushed", "memory bind error", "bad response", "local access error",
		"remote invalid request", "remote access error", "remote operation error", "transport retry counter exceeded",
		"RNR retry counter exceeded", "local RDD violation", "remote invalid RD request", "aborted by the remote side",
		"invalid EE context number", "invalid EE context state", "fatal error", "response timeout", "general error",
		"tag matching error", "tag matching rendezvous incomplete")
}

// WCOpcode is enum ibv_wc_opcode. Bit 7 is set for receives.
type WCOpcode uint32

// The opcodes of the queue pairs that this package makes.
const (
	WCSend WCOpcode = iota
	WCRDMAWrite
	WCRDMARead
	WCCompSwap
	WCFetchAdd
	WCBindMW
	WCLocalInv
	WCTSO
	WCRecv            WCOpcode = 1 << 7
	WCRecvRDMAWithImm WCOpcode = 1<<7 + 1
)

// CreateCQ makes a completion queue.
func (c *Context) CreateCQ(o CQOptions) (*CQ, error) {
	if o.CQE == 0 {
		o.CQE = 16
	}
	q := &CQ{ctx: c}
	err := q.init("completion queue", c.device, func() (h handle, err error) {
		h, cqe, errno := c.v.createCQ(c.h, o)
		q.cqe = cqe
		return h, c.err("ibv_create_cq", errno)
	}, &c.object)
	if err != nil {
		return nil, err
	}
	remember(c, c.cqs, q.h, q)
	return q, nil
}

// CQE is how many entries the queue got: as many as were asked for, or more.
func (q *CQ) CQE() int { return q.cqe }

// Poll takes up to len(dst) completions off the queue, without waiting, and returns how
// many. Fewer than len(dst) means that the queue was emptied.
func (q *CQ) Poll(dst []WC) (int, error) {
	if err := q.use(); err != nil {
		return 0, err
	}
	defer q.done()
	n, errno := q.ctx.v.pollCQ(q.h, dst)
	return n, q.ctx.err("ibv_poll_cq", errno)
}

// Close destroys the queue.
func (q *CQ) Close() error {
	return q.close(func(h handle) error {
		if err := q.ctx.err("ibv_destroy_cq", q.ctx.v.destroyCQ(h)); err != nil {
			return err
		}
		forget(q.ctx, q.ctx.cqs, h, q)
		if q.mlx5 != nil {
			q.mlx5.unload()
		}
		return nil
	})
}
