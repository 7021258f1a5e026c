package queuepair

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/ibv"
)

// job is a call of post. The worker owns it until it closes done.
type job struct {
	op     int
	batch  uint64 // number of the job, in the wr_id of its requests
	left   int    // operations still to post
	posted uint64
	ended  dataplane.Posted
	lost   uint64 // ended operations whose result nobody knows
	err    error  // why posting has stopped, or nil
	done   chan struct{}
}

// A wr_id contains the kind of operation, because the opcode of a completion in error is undefined. It also
// contains the number of the job, because completions may arrive after their job was given up.
func wrID(batch uint64, op int) uint64 { return batch<<8 | uint64(op) }
func opOf(id uint64) int               { return int(id & 7) }
func batchOf(id uint64) uint64         { return id >> 8 }

// addCompletion counts a completion of the job. It ignores completions of an earlier job, and any if there is
// no job.
func (j *job) addCompletion(batch uint64, status ibv.WCStatus) {
	switch {
	case j == nil || batch != j.batch:
	case status == statusUnknown:
		j.lost++
	case status == ibv.WCSuccess:
		j.ended.Completed++
	default:
		j.ended.Errors++
	}
}

// fail stops posting because of err. The first error stays, and a complete job does not fail. A nil job may
// fail, too.
func (j *job) fail(err error) {
	if j == nil || j.err != nil || j.complete() {
		return
	}
	j.err = fmt.Errorf("%d of %d operations were posted: %w", j.posted, j.posted+uint64(j.left), err)
	j.left = 0
}

// complete reports whether all operations of the job are posted and have completed.
func (j *job) complete() bool {
	return j.left == 0 && j.ended.Completed+j.ended.Errors+j.lost == j.posted
}

// opcodeByKind contains the kinds of operation with a work request. A receive is posted in another way.
var opcodeByKind = map[int]ibv.WROpcode{
	opSend:      ibv.WRSend,
	opRDMARead:  ibv.WRRDMARead,
	opRDMAWrite: ibv.WRRDMAWrite,
}

// posts reports whether a queue pair of this type can post operations of a kind.
func (q *queuePair) posts(kind int) bool {
	_, ok := opcodeByKind[kind]
	return ok && q.cfg.Type != dataplane.RawPacket && (kind == opSend || q.cfg.Type.RDMA())
}

// postable lists the operations that the queue pair can post, for errors.
func (q *queuePair) postable() string {
	var all []string
	for kind, op := range dataplane.Operations() {
		if q.posts(kind) {
			all = append(all, string(op))
		}
	}
	if len(all) == 0 {
		return "no operations"
	}
	return "only " + strings.Join(all, ", ")
}

// giveUpBound is how long post waits for the worker after its context has ended. The worker then tells how many
// operations have ended, unless it hangs inside a verb.
const giveUpBound = time.Second

// post posts count operations, at most SendDepth at a time, and waits until they have completed. Callers take
// turns. While the worker hangs inside a verb, nobody else gets the turn.
func (q *queuePair) post(ctx context.Context, op dataplane.Operation, count int) (dataplane.Posted, error) {
	kind := slices.Index(dataplane.Operations(), op)
	if !q.posts(kind) {
		return dataplane.Posted{}, fmt.Errorf("queue pair %q: posting %s: type %s posts %s: %w",
			q.cfg.Name, op, q.cfg.Type, q.postable(), dataplane.ErrInvalid)
	}
	if count < 1 {
		return dataplane.Posted{}, fmt.Errorf("queue pair %q: posting %d operations: name at least 1: %w", q.cfg.Name, count, dataplane.ErrInvalid)
	}

	select {
	case q.turns <- struct{}{}:
	case <-ctx.Done():
		return dataplane.Posted{}, fmt.Errorf("queue pair %q: waiting for its turn: %w", q.cfg.Name, ctx.Err())
	}

	j := &job{op: kind, left: count, done: make(chan struct{})}
	if err := q.call(ctx, func() error { return q.worker.startJob(j) }); err != nil {
		<-q.turns
		return dataplane.Posted{}, err
	}

	select {
	case <-j.done:
		<-q.turns
	case <-ctx.Done():
		go q.giveUp(j, ctx.Err()) // it gives the turn back
		select {
		case <-j.done:
		case <-time.After(giveUpBound):
			return dataplane.Posted{}, fmt.Errorf("queue pair %q: posting %s: %w: a verb of its device does not return, so the number of completed operations is unknown; restart the instance if it stays so",
				q.cfg.Name, op, ctx.Err())
		}
	}
	if j.lost > 0 {
		j.err = cmp.Or(j.err, dataplane.ErrNotConnected)
		j.err = fmt.Errorf("%w; the results of %d operations are unknown: an error overwrote them in the collapsed completion queue", j.err, j.lost)
	}
	if j.err != nil {
		return j.ended, fmt.Errorf("queue pair %q: posting %s: %w", q.cfg.Name, op, j.err)
	}
	return j.ended, nil
}

// giveUp ends a job because of err and returns its turn. It waits for the worker, which may be inside a verb.
func (q *queuePair) giveUp(j *job, err error) {
	_ = q.call(context.Background(), func() error { // an error means that the worker has ended, and the job with it
		if q.worker.job == j {
			j.left = 0
			j.err = err
			q.worker.finishJob()
		}
		return nil
	})
	<-j.done
	<-q.turns
}

// startJob makes j the worker's job. postJob posts its operations.
func (w *worker) startJob(j *job) error {
	if err := w.canPost(); err != nil {
		return fmt.Errorf("queue pair %q: %w", w.cfg.Name, err)
	}
	e := w.endpoint
	rdma := j.op != opSend
	if lacks := e.lacks(dataplane.Operations()[j.op]); lacks != nil {
		return fmt.Errorf("queue pair %q: posting %s: %w", w.cfg.Name, dataplane.Operations()[j.op], lacks)
	}
	if rdma && e.peer.RKey == 0 && e.peer.Addr == 0 {
		return fmt.Errorf("queue pair %q: posting %s: the address of its peer has no addr and rkey: connect it to an address with both: %w",
			w.cfg.Name, dataplane.Operations()[j.op], dataplane.ErrInvalid)
	}

	w.batch++
	j.batch = w.batch
	w.job = j

	// All requests of a job are equal, and use one piece of memory.
	wr := ibv.SendWR{
		WRID:   wrID(j.batch, j.op),
		Opcode: opcodeByKind[j.op],
		SGE:    ibv.SGE{Addr: e.buffer.Addr(), Length: uint32(e.messageSize), LKey: e.buffer.LKey()},
	}
	if rdma {
		wr.RemoteAddr = e.peer.Addr
		wr.RKey = e.peer.RKey
	}
	if w.cfg.Type.Datagrams() {
		wr.AH = e.ah
		wr.RemoteQPN = e.peer.QPN
		wr.RemoteQKey = e.peer.QKey
	}
	for i := range w.send {
		w.send[i] = wr
	}
	return nil
}

// finishJob ends the job, if any, and wakes the caller of post.
func (w *worker) finishJob() {
	if w.job != nil {
		close(w.job.done)
		w.job = nil
	}
}

// canPost returns an error while the queue pair cannot post anything.
func (w *worker) canPost() error {
	switch e := w.endpoint; {
	case e == nil:
		return fmt.Errorf("%w: %w", dataplane.ErrNotConnected, backend.ErrDeviceLost)
	case e.connectErr != nil:
		return fmt.Errorf("%w: it is in state %v: %v", dataplane.ErrNotConnected, e.state, e.connectErr)
	case e.state != ibv.QPSRTS:
		if e.fault.status != ibv.WCSuccess {
			return fmt.Errorf("%w: it is in state %v: %v", dataplane.ErrNotConnected, e.state, e.fault)
		}
		return fmt.Errorf("%w: it is in state %v", dataplane.ErrNotConnected, e.state)
	case e.peer.QPN == 0:
		return fmt.Errorf("%w: it has no peer yet", dataplane.ErrNotConnected)
	}
	return nil
}

// postJob posts operations of the job until the send queue is full, and finishes a complete job. It returns false
// if there was nothing to do.
func (w *worker) postJob() (progress bool) {
	j := w.job
	if j == nil {
		return false
	}

	if j.left > 0 {
		if err := w.canPost(); err != nil {
			j.fail(err)
		}
	}
	for j.left > 0 {
		room := w.cfg.SendDepth - int(w.outstanding.Load())
		n := min(room, j.left, len(w.send))
		if n <= 0 {
			break
		}
		posted, err := w.endpoint.pair().PostSend(w.send[:n])
		w.outstanding.Add(int64(posted))
		j.left -= posted
		j.posted += uint64(posted)
		progress = progress || posted > 0
		if err != nil {
			j.fail(err)
		}
	}

	if j.complete() {
		w.finishJob()
		return true
	}
	return progress
}
