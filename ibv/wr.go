package ibv

import (
	"errors"
	"fmt"
	"syscall"
)

// SGE is struct ibv_sge: a part of a memory region. An SGE of length 0 is ignored.
type SGE struct {
	Addr   uint64 // MR.Addr plus an offset
	Length uint32 // bytes
	LKey   uint32 // MR.LKey
}

// WROpcode is enum ibv_wr_opcode.
type WROpcode uint32

// The opcodes supported by PostSend.
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
	SendFence     SendFlags = 1 << iota // wait for earlier RDMA reads to end; RC only
	SendSignaled                        // make a completion; not needed with QPOptions.SignalAll
	SendSolicited                       // wake a peer waiting for solicited completions
	SendInline                          // copy the bytes now, so that the memory can be reused at once
)

// SendWR is struct ibv_send_wr with one segment.
type SendWR struct {
	WRID   uint64 // returned in the completion
	Opcode WROpcode
	Flags  SendFlags
	SGE    SGE
	Imm    uint32 // for opcodes with immediate data

	// The peer's memory, for RDMA operations.
	RemoteAddr uint64
	RKey       uint32

	// The destination, for datagrams.
	AH         *AH
	RemoteQPN  uint32
	RemoteQKey uint32
}

// RecvWR is struct ibv_recv_wr with one segment. On a UD queue pair, the first 40 bytes receive the GRH, and the
// message follows.
type RecvWR struct {
	WRID uint64 // returned in the completion
	SGE  SGE
}

// postBatch is the largest number of requests in one call of the library.
const postBatch = 16

// PostSend posts the requests in order, and returns the number of accepted ones. It stops at the first refused
// request, which the error names. ENOMEM means that the send queue is full: poll completions first. Until a
// request has completed, do not touch its memory, and do not close its region or address handle. PostSend
// allocates only for an error.
//
// PostSend itself checks requests before the library sees them, because a provider would follow missing
// pointers. It returns EINVAL for these, and for requests that ibv_post_send(3) does not allow on a queue pair of
// this type.
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

// postRun posts as many requests from the head of wrs as one call can take. All of them must use the address
// handle of the first one, and inline data must come from one memory region.
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

	var inlineMR *MR // keep it open during the call, in which the library copies from it
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

// inline reports whether the library must copy data of w.
func (w *SendWR) inline() bool { return w.Flags&SendInline != 0 && w.SGE.Length > 0 }

// usesObjectsOf reports whether w uses only objects of first, so that one call can take both.
func (w *SendWR) usesObjectsOf(first *SendWR) bool {
	if w.AH != first.AH || w.inline() != first.inline() {
		return false
	}
	return !w.inline() || w.SGE.LKey == first.SGE.LKey
}

// nameRefused adds the refused request to err, and also the next step if the queue is full: requests occupy the
// queue until their completions are polled.
func nameRefused(err error, kind string, at int, wrID uint64) error {
	if errors.Is(err, syscall.ENOMEM) {
		err = fmt.Errorf("%w: the %s queue is full: poll completions first", err, kind)
	}
	return fmt.Errorf("%w: %s request %d (wr_id %#x) and those behind it were not posted", err, kind, at, wrID)
}

// PostRecv posts receive requests in order, and returns the number of accepted ones. Errors and memory are as with
// PostSend.
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
