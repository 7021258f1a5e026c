package ibv

import (
	"errors"
	"fmt"
	"syscall"
)

// SGE is struct ibv_sge: a part of a memory region. An SGE of length 0 is ignored.
type SGE struct {
	Addr   uint64 // within the region, from MR.Addr on
	Length uint32 // bytes
	LKey   uint32 // MR.LKey
}

// WROpcode is enum ibv_wr_opcode.
type WROpcode uint32

// The operations that this package posts.
const (
	WRRDMAWrite WROpcode = iota
	WRRDMAWriteWithImm
	WRSend
	WRSendWithImm
	WRRDMARead
)

func (o WROpcode) String() string {
	return name("opcode", o, "RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "SEND", "SEND_WITH_IMM", "RDMA_READ")
}

// SendFlags is enum ibv_send_flags.
type SendFlags uint32

// The flags of a send request.
const (
	SendFence     SendFlags = 1 << iota // after the RDMA reads before it; RC
	SendSignaled                        // make a completion, unless QPOptions.SignalAll makes all
	SendSolicited                       // wake the peer that waits for solicited completions
	SendInline                          // copy the bytes now: the memory is free again at once
)

// SendWR is struct ibv_send_wr with one segment.
type SendWR struct {
	WRID   uint64 // comes back in the completion
	Opcode WROpcode
	Flags  SendFlags
	SGE    SGE
	Imm    uint32 // of the opcodes with immediate data

	// Of RDMA operations: the peer's memory.
	RemoteAddr uint64
	RKey       uint32

	// Of datagrams: the destination.
	AH         *AH
	RemoteQPN  uint32
	RemoteQKey uint32
}

// RecvWR is struct ibv_recv_wr with one segment. On a UD queue pair the first 40 bytes
// are the GRH's, and the message comes behind them.
type RecvWR struct {
	WRID uint64 // comes back in the completion
	SGE  SGE
}

// postBatch is the number of requests that one call of the library takes at most.
const postBatch = 16

// PostSend posts the requests in order and stops at the first refused one, which the error names;
// posted is the number of accepted requests. ENOMEM means that the send queue is full. The memory
// of a request and its address handle belong to the device until the request has completed.
// PostSend allocates only for an error.
//
// PostSend itself refuses with EINVAL a request that ibv_post_send(3) does not allow on a queue
// pair of that type, and a request whose missing pointers a provider would follow.
func (q *QP) PostSend(wrs []SendWR) (posted int, err error) {
	if err := q.use(); err != nil {
		return 0, err
	}
	defer q.done()

	for posted < len(wrs) {
		n, err := q.postRun(wrs[posted:])
		posted += n
		if err != nil {
			return posted, nameRefused(err, "send", posted, wrs[posted].WRID)
		}
	}
	return posted, nil
}

// postRun posts the requests at the head of wrs that one call can take: all use the address handle
// of the first, and inline data of its memory region.
func (q *QP) postRun(wrs []SendWR) (int, error) {
	const verb = "ibv_post_send"
	first := &wrs[0]

	var ah handle
	if first.AH != nil {
		if err := first.AH.use(); err != nil {
			return 0, err
		}
		defer first.AH.done()
		ah = first.AH.h
	}

	var inlineMR *MR // the library copies from it during the call, so it stays mapped until then
	if first.inline() {
		var err error
		inlineMR, err = q.pd.useRegion(first.SGE.LKey)
		if err != nil {
			return 0, fmt.Errorf("%w: %w", q.ctx.err(verb, syscall.EINVAL), err)
		}
		defer inlineMR.done()
	}

	if err := q.checkSend(first, inlineMR); err != nil {
		return 0, fmt.Errorf("%w: %w", q.ctx.err(verb, syscall.EINVAL), err)
	}
	run := 1
	for run < min(len(wrs), postBatch) && wrs[run].usesObjectsOf(first) && q.checkSend(&wrs[run], inlineMR) == nil {
		run++
	}

	n, errno := q.ctx.v.postSend(q.h, ah, wrs[:run])
	return n, q.ctx.err(verb, errno)
}

// inline reports whether the library copies the data of w.
func (w *SendWR) inline() bool { return w.Flags&SendInline != 0 && w.SGE.Length > 0 }

// usesObjectsOf reports whether w needs no other objects than first.
func (w *SendWR) usesObjectsOf(first *SendWR) bool {
	if w.AH != first.AH || w.inline() != first.inline() {
		return false
	}
	return !w.inline() || w.SGE.LKey == first.SGE.LKey
}

// nameRefused adds the refused request to err. If the queue is full it adds the remedy: requests
// occupy the queue until their completions have been polled.
func nameRefused(err error, kind string, at int, wrID uint64) error {
	if errors.Is(err, syscall.ENOMEM) {
		err = fmt.Errorf("%w: the %s queue is full: poll completions first", err, kind)
	}
	return fmt.Errorf("%w: %s request %d (wr_id %#x) and those behind it were not posted", err, kind, at, wrID)
}

// PostRecv posts receive requests, as PostSend does.
func (q *QP) PostRecv(wrs []RecvWR) (posted int, err error) {
	if err := q.use(); err != nil {
		return 0, err
	}
	defer q.done()

	for posted < len(wrs) {
		run := wrs[posted:][:min(len(wrs)-posted, postBatch)]
		n, errno := q.ctx.v.postRecv(q.h, run)
		posted += n
		if errno != 0 {
			return posted, nameRefused(q.ctx.err("ibv_post_recv", errno), "receive", posted, wrs[posted].WRID)
		}
	}
	return posted, nil
}
