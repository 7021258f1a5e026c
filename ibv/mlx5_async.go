package ibv

import (
	"context"
	"fmt"
	"sync"
	"syscall"
)

// AsyncQueries receives the results of queries that run without a waiting thread
// (mlx5dv_devx_cmd_comp): one goroutine can have any number of bulks read at once, and holds no
// thread. Each query costs firmware as much as a synchronous one.
type AsyncQueries struct {
	object
	dx     *DevX
	events *eventFile

	mu    sync.Mutex
	last  uint64 // wr_id
	asked map[uint64]asyncQuery

	out []byte // room for the largest result; the goroutine that waits owns it
}

// asyncQuery is a query on its way.
type asyncQuery struct {
	id  uint64
	dst []FlowCount
}

// AsyncQueries makes a receiver of results (rdma-core 22 and Linux 5.1, or later).
func (d *DevX) AsyncQueries() (*AsyncQueries, error) {
	q := &AsyncQueries{dx: d, asked: make(map[uint64]asyncQuery), out: make([]byte, prmOutSize+MaxFlowCounters*trafficCounterSize)}
	err := q.init("asynchronous queries", d.device, func() (handle, error) {
		h, fd, errno := d.m.createCmdComp(d.h)
		if errno != 0 {
			return 0, d.ctx.err("mlx5dv_devx_create_cmd_comp", errno)
		}
		events, err := newEventFile(fd, d.device)
		if err != nil {
			d.m.destroyCmdComp(h)
			return 0, err
		}
		q.events = events
		return h, nil
	}, &d.object)
	if err != nil {
		return nil, err
	}
	return q, nil
}

// QueryAsync starts the query of [FlowCounters.Query] and returns. dst belongs to the query until
// [AsyncQueries.Next] returns id, which the caller chooses. The counters may be closed earlier. An
// error that satisfies errors.Is(err, syscall.EAGAIN) means that a megabyte of results is unread.
func (f *FlowCounters) QueryAsync(q *AsyncQueries, dst []FlowCount, id uint64) error {
	switch {
	case len(dst) == 0 || len(dst) > f.n:
		return fmt.Errorf("%s: querying %d flow counters of %d: %w", f.device, len(dst), f.n, errSize)
	case q.dx != f.dx:
		return fmt.Errorf("%s: querying flow counters of another DevX context: %w", f.device, syscall.EINVAL)
	}
	if err := f.use(); err != nil {
		return err
	}
	defer f.done()
	if err := q.use(); err != nil {
		return err
	}
	defer q.done()
	f.query.Lock()
	defer f.query.Unlock()
	if err := f.ask(len(dst)); err != nil {
		return err
	}
	wrID := q.remember(asyncQuery{id, dst})
	errno := f.dx.m.queryAsync(f.h, f.in, prmOutSize+f.units*trafficCounterSize, wrID, q.h)
	if errno != 0 {
		q.forget(wrID)
	}
	return f.dx.ctx.err("mlx5dv_devx_obj_query_async (QUERY_FLOW_COUNTER)", errno)
}

func (q *AsyncQueries) remember(a asyncQuery) uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.last++
	q.asked[q.last] = a
	return q.last
}

func (q *AsyncQueries) forget(wrID uint64) (asyncQuery, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a, ok := q.asked[wrID]
	delete(q.asked, wrID)
	return a, ok
}

// Next waits for a result, in the order in which firmware completes the queries, and copies it to
// the dst of its query. If ok is true, a query has ended: id names it and err is its error; after
// an error dst is unchanged. If ok is false, no query has ended: ctx ended, q is closed
// (ErrClosed), or the device failed. Next holds no thread while it waits.
func (q *AsyncQueries) Next(ctx context.Context) (id uint64, ok bool, err error) {
	err = q.events.wait(ctx, func() (bool, error) {
		if err := q.use(); err != nil {
			return false, err
		}
		defer q.done()
		wrID, errno := q.dx.m.getAsync(q.h, q.out)
		switch errno {
		case 0:
			id, ok, err = q.answer(wrID)
			return true, err
		case syscall.EAGAIN, syscall.EINTR:
			return false, nil
		}
		return true, q.dx.ctx.err("mlx5dv_devx_get_async_cmd_comp", errno)
	})
	return id, ok, err
}

// answer decodes the result in out.
func (q *AsyncQueries) answer(wrID uint64) (id uint64, ok bool, err error) {
	a, ok := q.forget(wrID)
	if !ok {
		return 0, false, fmt.Errorf("%s: result %d belongs to no query: %w", q.device, wrID, syscall.EPROTO)
	}
	if err := q.dx.command("mlx5dv_devx_obj_query_async (QUERY_FLOW_COUNTER)", 0, q.out); err != nil {
		return a.id, true, err
	}
	for i := range a.dst {
		a.dst[i] = trafficCounter(q.out[prmOutSize+i*trafficCounterSize:])
	}
	return a.id, true, nil
}

// Close ends a Next that waits. Queries that are on their way end unseen.
func (q *AsyncQueries) Close() error {
	err := q.close(func(h handle) error {
		q.dx.m.destroyCmdComp(h)
		return nil
	})
	q.events.close() // not under the lock: this waits for a Next that is about to read
	return err
}
