package ibv

import "sync"

// CQOptions are the arguments of ibv_create_cq(3).
type CQOptions struct {
	CQE        int // entries at least; 0: 16
	CompVector int // vector of completion events, which this package does not read
}

// CQ is a completion queue.
type CQ struct {
	object
	ctx *Context
	cqe int

	mlx5Mu sync.Mutex
	mlx5   mlx5 // opened by CreateMLX5CQ or MLX5Ring, and closed by Close; otherwise nil
}

// WC is struct ibv_wc: a work completion. If Status is not WCSuccess, only WRID, Status, VendorErr
// and QPNum are valid, as ibv_poll_cq(3) says.
type WC struct {
	WRID         uint64 // of the request
	Status       WCStatus
	Opcode       WCOpcode
	VendorErr    uint32
	ByteLen      uint32 // of a receive, or of an RDMA read
	ImmData      uint32 // the immediate data or the invalidated rkey, depending on Flags
	QPNum        uint32
	SrcQP        uint32 // of a datagram
	Flags        uint32 // enum ibv_wc_flags
	PKeyIndex    uint16
	SLID         uint16
	SL           uint8
	DLIDPathBits uint8
}

// WCStatus is enum ibv_wc_status. Every value except WCSuccess is an error. ibv_poll_cq(3) explains them.
type WCStatus uint32

// The statuses of completions.
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

// The opcodes of completions on queue pairs of this package.
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

// CreateCQ makes a completion queue. Ask for an entry for each request that can be outstanding: a queue
// that overruns fails, and its queue pairs with it. More entries than DeviceAttr.MaxCQE are EINVAL.
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
	remember(c, c.cqByHandle, q.h, q)
	return q, nil
}

// CQE returns the actual number of entries, which may exceed CQOptions.CQE.
func (q *CQ) CQE() int { return q.cqe }

// Poll moves up to len(dst) completions from the queue to dst, without waiting, and returns their number.
// If it is less than len(dst), the queue was empty. Poll allocates nothing.
func (q *CQ) Poll(dst []WC) (int, error) {
	if err := q.use(); err != nil {
		return 0, err
	}
	defer q.done()

	n, errno := q.ctx.v.pollCQ(q.h, dst)
	return n, q.ctx.err("ibv_poll_cq", errno)
}

// Close destroys the queue. Queue pairs hold it: close them first.
func (q *CQ) Close() error {
	return q.close(func(h handle) error {
		if err := q.ctx.err("ibv_destroy_cq", q.ctx.v.destroyCQ(h)); err != nil {
			return err
		}
		forget(q.ctx, q.ctx.cqByHandle, h, q)
		if q.mlx5 != nil {
			q.mlx5.unload()
		}
		return nil
	})
}
