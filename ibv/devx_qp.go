package ibv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// DevXQPOptions are the attributes of a queue pair made by the firmware command CREATE_QP.
type DevXQPOptions struct {
	SendCQ, RecvCQ *DevXCQ
	UAR            *UAR
	MaxSendWR      int // at least; at most 32768
	MaxRecvWR      int
}

// DevXQP is a queue pair of type RC made by DevX: this package writes its requests, each with one segment, where
// libmlx5 would. A request takes one block of 64 bytes of the send queue, so the counter of its completion
// (wqe_counter) is its number, mod 2^16.
//
// Nobody polls its completion queues, so the caller tells by Free which requests have completed. Peers may be queue
// pairs of any kind. The kernel tells a DevX queue pair no events: ask for its state by Query.
type DevXQP struct {
	object
	dx     *DevX
	pd     *PD
	uar    *UAR
	umem   *UMEM
	number uint32
	sysfs  string        // the device's directory, where libibverbs found it
	port   atomic.Uint32 // of the path, since INIT

	mu     sync.Mutex // of the queues
	sq, rq devxQueue
}

// devxQueue is a send or receive queue in the umem.
type devxQueue struct {
	ring   []byte
	stride int
	record []byte // the doorbell record
	posted uint64 // since the last RESET
	freed  uint64
}

func (q *devxQueue) size() uint64 { return uint64(len(q.ring) / q.stride) }

// take returns the memory of the next request, or nil if the queue is full.
func (q *devxQueue) take() []byte {
	if q.posted-q.freed >= q.size() {
		return nil
	}
	at := int(q.posted%q.size()) * q.stride
	q.posted++
	return q.ring[at : at+q.stride]
}

const (
	sendStride  = 64
	recvStride  = 16
	maxQueueLog = 15
)

// queueLog returns the logarithm of a queue of at least n requests, 4 at least: so the send queue, behind the
// receives, begins at a multiple of 64 bytes.
func queueLog(n int) int { return max(bits.Len(uint(max(n, 1)-1)), 2) }

// CreateQP makes a queue pair of the domain in state RESET. It holds the domain, the completion queues and the UAR. The
// domain must be of d.AllocPD. Every request makes a completion.
func (d *DevX) CreateQP(pd *PD, o DevXQPOptions) (*DevXQP, error) {
	const verb = "mlx5dv_devx_obj_create (CREATE_QP)"
	if pd == nil || o.SendCQ == nil || o.RecvCQ == nil || o.UAR == nil {
		return nil, fmt.Errorf("%w: a queue pair needs a domain, two completion queues and a UAR", d.ctx.err(verb, syscall.EINVAL))
	}
	logSQ, logRQ := queueLog(o.MaxSendWR), queueLog(o.MaxRecvWR)
	if logSQ > maxQueueLog || logRQ > maxQueueLog {
		return nil, fmt.Errorf("%w: a queue holds at most %d requests", d.ctx.err(verb, syscall.EINVAL), 1<<maxQueueLog)
	}

	rqBytes, sqBytes := recvStride<<logRQ, sendStride<<logSQ
	umem, err := d.AllocUMEM(rqBytes + sqBytes + 64)
	if err != nil {
		return nil, err
	}
	mem := umem.mem
	db := mem[rqBytes+sqBytes:]
	q := &DevXQP{
		dx: d, pd: pd, uar: o.UAR, umem: umem,
		rq: devxQueue{ring: mem[:rqBytes], stride: recvStride, record: db[0:4]},
		sq: devxQueue{ring: mem[rqBytes:][:sqBytes], stride: sendStride, record: db[4:8]},
	}
	err = q.init("queue pair", d.device, func() (handle, error) {
		pdn, errno := d.m.pdNumber(pd.h)
		if errno != 0 {
			return 0, d.ctx.err("mlx5dv_init_obj", errno)
		}
		in, err := encodePRM(nil, createQPInSize, &createQPIn{
			PD: pdn, LogRQ: uint8(logRQ), LogSQ: uint8(logSQ), UARPage: o.UAR.page,
			SendCQ: o.SendCQ.cqn, RecvCQ: o.RecvCQ.cqn, WQUMEM: umem.id,
			DBRUMEM: umem.id, DBROffset: uint64(rqBytes + sqBytes),
		})
		if err != nil {
			return 0, fmt.Errorf("%s: encoding CREATE_QP: %w", d.device, err)
		}

		var out queueOut
		h, err := d.createObject("CREATE_QP", in, &out)
		q.number = out.Number
		q.sysfs = d.ctx.v.sysfsPath(d.h)
		return h, err
	}, &d.object, &pd.object, &o.SendCQ.object, &o.RecvCQ.object, &o.UAR.object, &umem.object)
	if err != nil {
		return nil, errors.Join(err, umem.Close())
	}
	return q, nil
}

// Number returns the number of the queue pair (24 bits).
func (q *DevXQP) Number() uint32 { return q.number }

// Modify sets the state and the attributes that its transition requires, as [QP.Modify]. There are the transitions from
// RESET to INIT, RTR and RTS, one after the other, and to ERR and RESET. RESET drops all requests.
func (q *DevXQP) Modify(a QPAttr, mask QPAttrMask) error {
	if err := q.use(); err != nil {
		return err
	}
	defer q.done()

	before := map[QPState]QPState{QPSInit: QPSReset, QPSRTR: QPSInit, QPSRTS: QPSRTR, QPSErr: QPSRTS, QPSReset: QPSRTS}
	from, ok := before[a.State]
	if !ok || mask&QPAttrState == 0 {
		return fmt.Errorf("%w: no transition to %v is offered", q.dx.ctx.err("mlx5dv_devx_obj_modify", syscall.EINVAL), a.State)
	}
	if err := checkModify(QPTRC, from, a.State, mask); err != nil {
		return fmt.Errorf("%w: %w", q.dx.ctx.err("mlx5dv_devx_obj_modify", syscall.EINVAL), err)
	}

	cmd := modifyQPIn{QPN: q.number}
	size := modifyQPInSize
	switch a.State {
	case QPSInit:
		cmd.toInit(&a)
		q.port.Store(uint32(a.PortNum))
	case QPSRTR:
		mac, err := q.nextHop(&a.AH)
		if err != nil {
			return err
		}
		port, err := q.sourcePort(&a, mac)
		if err != nil {
			return err
		}
		cmd.toRTR(&a, mac, port)
	case QPSRTS:
		cmd.toRTS(&a)
		cmd.Port = uint8(q.port.Load())
	case QPSErr:
		cmd.opcode, size = op2ErrQP, prmInSize
	case QPSReset:
		cmd.opcode, size = op2RstQP, prmInSize
	}

	in, err := encodePRM(nil, size, &cmd)
	if err != nil {
		return fmt.Errorf("%s: encoding %s: %w", q.device, modifyNames[cmd.opcode], err)
	}
	out := make([]byte, prmOutSize)
	errno := q.dx.m.modifyObject(q.h, in, out)
	if err := q.dx.commandErr("mlx5dv_devx_obj_modify ("+modifyNames[cmd.opcode]+")", errno, out); err != nil {
		return err
	}
	if a.State == QPSReset {
		q.reset()
	}
	return nil
}

// reset empties the queues: the device begins at the first slot again.
func (q *DevXQP) reset() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range []*devxQueue{&q.sq, &q.rq} {
		w.posted, w.freed = 0, 0
		clear(w.record)
	}
}

// nextHop asks the kernel for the hardware address of a path. Firmware does not resolve it, and neither does the kernel
// for a DevX queue pair: so we make an address handle of the path, and read the address there.
func (q *DevXQP) nextHop(a *AHAttr) (mac [6]byte, err error) {
	ah, err := q.pd.CreateAH(*a)
	if err != nil {
		return mac, err
	}
	mac, errno := q.dx.m.nextHop(ah.h)
	return mac, errors.Join(q.dx.ctx.err("mlx5dv_init_obj", errno), ah.Close())
}

// sourcePort returns the UDP source port of RoCE v2, and 0 for other ports: they reserve the field. The kernel chooses it
// from the flow label, or from both numbers (rdma_calc_flow_label); any value of the dynamic range serves.
func (q *DevXQP) sourcePort(a *QPAttr, mac [6]byte) (uint16, error) {
	if mac == ([6]byte{}) {
		return 0, nil // InfiniBand
	}
	kind, err := os.ReadFile(fmt.Sprintf("%s/ports/%d/gid_attrs/types/%d", q.sysfs, a.AH.PortNum, a.AH.GRH.SGIDIndex))
	if err != nil {
		return 0, fmt.Errorf("%s: reading the type of GID %d: %w", q.device, a.AH.GRH.SGIDIndex, err)
	}
	if strings.TrimSpace(string(kind)) != "RoCE v2" {
		return 0, nil
	}
	return 0xc000 | uint16(q.number^a.DestQPNum)&0x3fff, nil
}

// Query reads the state. Other attributes of mask are EINVAL.
func (q *DevXQP) Query(mask QPAttrMask) (QPAttr, error) {
	const verb = "mlx5dv_devx_obj_query (QUERY_QP)"
	if err := q.use(); err != nil {
		return QPAttr{}, err
	}
	defer q.done()
	if mask != QPAttrState {
		return QPAttr{}, fmt.Errorf("%w: only the state is offered", q.dx.ctx.err(verb, syscall.EINVAL))
	}

	in, err := encodePRM(nil, prmInSize, &modifyQPIn{opcode: opQueryQP, QPN: q.number})
	if err != nil {
		return QPAttr{}, err
	}
	out := make([]byte, queryQPOutSize)
	errno := q.dx.m.queryObject(q.h, in, out)
	if err := q.dx.commandErr(verb, errno, out); err != nil {
		return QPAttr{}, err
	}
	var got queryQPOut
	decodePRM(out, &got)
	states := map[uint8]QPState{0: QPSReset, 1: QPSInit, 2: QPSRTR, 3: QPSRTS, 4: QPSSQE, 5: QPSSQD, 6: QPSErr}
	state, ok := states[got.State]
	if !ok {
		state = QPSUnknown
	}
	return QPAttr{State: state}, nil
}

// PostSend posts requests in order, as [QP.PostSend]. Requests with inline data, and those that name an address handle, are
// EINVAL. ENOMEM means that the queue is full: call Free for requests that have completed.
func (q *DevXQP) PostSend(wrs []SendWR) (posted int, err error) {
	if err := q.use(); err != nil {
		return 0, err
	}
	defer q.done()
	q.mu.Lock()
	defer q.mu.Unlock()

	var last []byte
	for i := range wrs {
		w := &wrs[i]
		errno := syscall.Errno(0)
		if opcodesByType[QPTRC]>>w.Opcode&1 == 0 || w.AH != nil || w.Flags&SendInline != 0 {
			errno = syscall.EINVAL
		}
		number := q.sq.posted
		var wqe []byte
		if errno == 0 {
			if wqe = q.sq.take(); wqe == nil {
				errno = syscall.ENOMEM
			}
		}
		if errno != 0 {
			err = nameRefused(q.dx.ctx.err("posting a send", errno), "send", i, w.WRID)
			break
		}
		q.encodeSend(wqe, uint16(number), w)
		last = wqe
		posted++
	}
	if posted > 0 {
		q.dx.m.doorbell(q.sq.record, uint32(q.sq.posted&0xffff), q.uar.register, last)
	}
	return posted, err
}

// wqeOpcodes are MLX5_OPCODE_* by WROpcode.
var wqeOpcodes = [...]uint8{WRRDMAWrite: 0x08, WRRDMAWriteWithImm: 0x09, WRSend: 0x0a, WRSendWithImm: 0x0b, WRRDMARead: 0x10}

// The flags of the control segment, MLX5_WQE_CTRL_*.
const (
	wqeCQUpdate  = 2 << 2
	wqeSolicited = 1 << 1
	wqeFence     = 4 << 5
)

// encodeSend writes a request: struct mlx5_wqe_ctrl_seg, for RDMA struct mlx5_wqe_raddr_seg, and struct
// mlx5_wqe_data_seg.
func (q *DevXQP) encodeSend(wqe []byte, number uint16, w *SendWR) {
	clear(wqe)
	be := binary.BigEndian
	at := 16
	if w.Opcode != WRSend && w.Opcode != WRSendWithImm {
		be.PutUint64(wqe[at:], w.RemoteAddr)
		be.PutUint32(wqe[at+8:], w.RKey)
		at += 16
	}
	if w.SGE.Length > 0 { // a length of 0 would be 2 GB
		be.PutUint32(wqe[at:], w.SGE.Length)
		be.PutUint32(wqe[at+4:], w.SGE.LKey)
		be.PutUint64(wqe[at+8:], w.SGE.Addr)
		at += 16
	}

	be.PutUint32(wqe, uint32(number)<<8|uint32(wqeOpcodes[w.Opcode]))
	be.PutUint32(wqe[4:], q.number<<8|uint32(at/16))
	wqe[11] = wqeCQUpdate
	if w.Flags&SendSolicited != 0 {
		wqe[11] |= wqeSolicited
	}
	if w.Flags&SendFence != 0 {
		wqe[11] |= wqeFence
	}
	be.PutUint32(wqe[12:], w.Imm)
}

// PostRecv posts receives in order, as [QP.PostRecv]. ENOMEM means that the queue is full: call Free.
func (q *DevXQP) PostRecv(wrs []RecvWR) (posted int, err error) {
	if err := q.use(); err != nil {
		return 0, err
	}
	defer q.done()
	q.mu.Lock()
	defer q.mu.Unlock()

	var last []byte
	for i := range wrs {
		wqe := q.rq.take()
		if wqe == nil {
			err = nameRefused(q.dx.ctx.err("posting a receive", syscall.ENOMEM), "receive", i, wrs[i].WRID)
			break
		}
		s := wrs[i].SGE
		if s.Length == 0 {
			s.LKey = invalidLKey
		}
		binary.BigEndian.PutUint32(wqe, s.Length)
		binary.BigEndian.PutUint32(wqe[4:], s.LKey)
		binary.BigEndian.PutUint64(wqe[8:], s.Addr)
		last = wqe
		posted++
	}
	if posted > 0 {
		q.dx.m.doorbell(q.rq.record, uint32(q.rq.posted&0xffff), 0, last)
	}
	return posted, err
}

// invalidLKey is MLX5_INVALID_LKEY, which ends the segments of a receive.
const invalidLKey = 0x100

// Posted returns the numbers of posted sends and receives since the last RESET: the producer indices of the two queues, in
// the unit of the completions' counters.
func (q *DevXQP) Posted() (sends, receives uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sq.posted, q.rq.posted
}

// Free gives the slots of completed requests back to the queues. sends and receives count the completions since the last
// RESET. Free ignores a number that is larger than the posted requests, or smaller than that of an earlier call.
func (q *DevXQP) Free(sends, receives uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sq.freed = max(q.sq.freed, min(sends, q.sq.posted))
	q.rq.freed = max(q.rq.freed, min(receives, q.rq.posted))
}

// Close destroys the queue pair and its memory.
func (q *DevXQP) Close() error {
	err := q.close(func(h handle) error {
		return q.dx.ctx.err("mlx5dv_devx_obj_destroy (DESTROY_QP)", q.dx.m.destroyObject(h))
	})
	if errors.Is(err, ErrBusy) {
		return err
	}
	return errors.Join(err, q.umem.Close())
}
