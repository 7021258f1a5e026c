package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/ibv"
)

// job is what a caller of post waits for. It is the goroutine's until done is closed.
type job struct {
	op     int
	batch  uint64 // in the wr_id of its requests
	left   int    // to be posted
	posted uint64
	ended  dataplane.Posted
	err    error // why no more is posted
	done   chan struct{}
}

// A wr_id says what kind of operation it is, as the opcode of a completion in error is not
// defined, and which job's.
func wrID(batch uint64, op int) uint64 { return batch<<8 | uint64(op) }
func opOf(id uint64) int               { return int(id & 7) }
func batchOf(id uint64) uint64         { return id >> 8 }

// settle takes note of a completion. Those of a job that was given up are nobody's.
func (j *job) settle(batch uint64, ok bool) {
	switch {
	case j == nil || batch != j.batch:
	case ok:
		j.ended.Completed++
	default:
		j.ended.Errors++
	}
}

// fail has no more posted, and is why not all of it may have ended.
func (j *job) fail(err error) {
	if j != nil && j.err == nil && !j.over() {
		j.err, j.left = fmt.Errorf("%d of %d operations were posted: %w", j.posted, j.posted+uint64(j.left), err), 0
	}
}

// over says that nothing of the job is outstanding.
func (j *job) over() bool { return j.left == 0 && j.ended.Completed+j.ended.Errors == j.posted }

// finish lets the caller go on.
func (q *queuePair) finish() {
	if q.job != nil {
		close(q.job.done)
		q.job = nil
	}
}

// wrOpcodes are the operations that can be posted.
var wrOpcodes = map[int]ibv.WROpcode{opSend: ibv.WRSend, opRDMARead: ibv.WRRDMARead, opRDMAWrite: ibv.WRRDMAWrite}

// post posts count operations, at most SendDepth at a time, and waits until they have completed.
// Callers take turns.
func (q *queuePair) post(ctx context.Context, op dataplane.Operation, count int) (dataplane.Posted, error) {
	kind := slices.Index(dataplane.Operations(), op)
	if _, ok := wrOpcodes[kind]; !ok || q.cfg.Type == dataplane.RawPacket || q.cfg.Type == dataplane.UD && kind != opSend {
		return dataplane.Posted{}, fmt.Errorf("queue pair %q: one of type %s cannot post %s: %w", q.cfg.Name, q.cfg.Type, op, dataplane.ErrInvalid)
	}
	if count < 1 {
		return dataplane.Posted{}, fmt.Errorf("queue pair %q: posting %d operations: name at least 1: %w", q.cfg.Name, count, dataplane.ErrInvalid)
	}
	select {
	case q.turns <- struct{}{}:
		defer func() { <-q.turns }()
	case <-ctx.Done():
		return dataplane.Posted{}, fmt.Errorf("queue pair %q: waiting for its turn: %w", q.cfg.Name, ctx.Err())
	}
	j := &job{op: kind, left: count, done: make(chan struct{})}
	if err := q.call(ctx, func() error { return q.take(j) }); err != nil {
		return dataplane.Posted{}, err
	}
	select {
	case <-j.done:
	case <-ctx.Done():
		_ = q.call(context.WithoutCancel(ctx), func() error { // closed: it was finished then
			if q.job == j {
				j.left, j.err = 0, ctx.Err()
				q.finish()
			}
			return nil
		})
		<-j.done
	}
	if j.err != nil {
		return j.ended, fmt.Errorf("queue pair %q: posting %s: %w", q.cfg.Name, op, j.err)
	}
	return j.ended, nil
}

// take begins a job.
func (q *queuePair) take(j *job) error {
	if err := q.ready(); err != nil {
		return fmt.Errorf("queue pair %q: %w", q.cfg.Name, err)
	}
	e := q.end
	rdma := j.op != opSend
	if rdma && q.peer.RKey == 0 && q.peer.Addr == 0 {
		return fmt.Errorf("queue pair %q: its peer was told without the addr and rkey that %s needs: %w",
			q.cfg.Name, dataplane.Operations()[j.op], dataplane.ErrInvalid)
	}
	q.batch++
	j.batch = q.batch
	wr := ibv.SendWR{
		WRID: wrID(j.batch, j.op), Opcode: wrOpcodes[j.op],
		SGE: ibv.SGE{Addr: e.own.Addr(), Length: uint32(e.message), LKey: e.own.LKey()},
	}
	if rdma {
		wr.RemoteAddr, wr.RKey = q.peer.Addr, q.peer.RKey
	}
	if q.cfg.Type == dataplane.UD {
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = e.ah, q.peer.QPN, q.peer.QKey
	}
	for i := range q.send {
		q.send[i] = wr
	}
	q.job = j
	return nil
}

// ready is nil when operations can be posted.
func (q *queuePair) ready() error {
	switch e := q.end; {
	case e == nil:
		return fmt.Errorf("%w: %w", dataplane.ErrNotConnected, backend.ErrDeviceLost)
	case e.loose != nil:
		return fmt.Errorf("%w: it is in state %v: %v", dataplane.ErrNotConnected, e.state, e.loose)
	case e.state != ibv.QPSRTS:
		if e.fault.status != ibv.WCSuccess {
			return fmt.Errorf("%w: it is in state %v: %v", dataplane.ErrNotConnected, e.state, e.fault)
		}
		return fmt.Errorf("%w: it is in state %v", dataplane.ErrNotConnected, e.state)
	case q.peer.QPN == 0:
		return fmt.Errorf("%w: it was not told its peer", dataplane.ErrNotConnected)
	}
	return nil
}

// postMore posts what there is room for, and ends the job when all of it has completed.
func (q *queuePair) postMore() (moved bool) {
	j, e := q.job, q.end
	if j == nil {
		return false
	}
	if j.left > 0 {
		if err := q.ready(); err != nil {
			j.fail(err)
		}
	}
	for j.left > 0 {
		n := min(q.cfg.SendDepth-int(q.outstanding.Load()), j.left, len(q.send))
		if n <= 0 {
			break
		}
		n, err := e.qp.PostSend(q.send[:n])
		q.outstanding.Add(int64(n))
		j.left -= n
		j.posted += uint64(n)
		moved = moved || n > 0
		if err != nil {
			j.fail(err)
		}
	}
	if j.over() {
		q.finish()
		return true
	}
	return moved
}

// receive posts so many buffers for what arrives. All of them are one place in memory:
// nobody reads what arrives, and it is pinned once.
func (q *queuePair) receive(e *endpoint, n int) error {
	wr := ibv.RecvWR{WRID: wrID(0, opRecv), SGE: ibv.SGE{Addr: e.own.Addr(), Length: uint32(e.room), LKey: e.own.LKey()}}
	for i := range q.recv[:min(n, len(q.recv))] {
		q.recv[i] = wr
	}
	for n > 0 {
		k, err := e.qp.PostRecv(q.recv[:min(n, len(q.recv))])
		e.posted += k
		if n -= k; err != nil {
			return err
		}
	}
	return nil
}
