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

	mu          sync.Mutex
	lastWRID    uint64
	queryByWRID map[uint64]asyncQuery // those on their way

	out []byte // room for the largest result; the goroutine in Next owns it
}

// asyncQuery is a query on its way: the caller's id, and where the result goes.
type asyncQuery struct {
	id  uint64
	dst []FlowCount
}

// AsyncQueries makes a receiver of results (rdma-core 22 and Linux 5.1, or later).
func (d *DevX) AsyncQueries() (*AsyncQueries, error) {
	q := &AsyncQueries{
		dx:          d,
		queryByWRID: make(map[uint64]asyncQuery),
		out:         make([]byte, prmOutSize+MaxFlowCounters*trafficCounterSize),
	}
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
	case len(dst) == 0 || len(dst) > f.size:
		return fmt.Errorf("%s: querying %d flow counters of %d: %w", f.device, len(dst), f.size, errSize)
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

	f.queryMu.Lock()
	defer f.queryMu.Unlock()
	if err := f.encodeQuery(len(dst)); err != nil {
		return err
	}

	// Next may get the result before queryAsync returns, so the query is known before.
	wrID := q.remember(asyncQuery{id, dst})
	errno := f.dx.m.queryAsync(f.h, f.in, prmOutSize+f.asked*trafficCounterSize, wrID, q.h)
	if errno != 0 {
		q.forget(wrID)
	}
	return f.dx.ctx.err("mlx5dv_devx_obj_query_async (QUERY_FLOW_COUNTER)", errno)
}

// remember gives a query its wr_id.
func (q *AsyncQueries) remember(a asyncQuery) (wrID uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()

	q.lastWRID++
	q.queryByWRID[q.lastWRID] = a
	return q.lastWRID
}

// forget takes a query out of those on their way.
func (q *AsyncQueries) forget(wrID uint64) (a asyncQuery, known bool) {
	q.mu.Lock()
	defer q.mu.Unlock()

	a, known = q.queryByWRID[wrID]
	delete(q.queryByWRID, wrID)
	return a, known
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
			id, ok, err = q.deliver(wrID)
			return true, err
		case syscall.EAGAIN, syscall.EINTR:
			return false, nil
		}
		return true, q.dx.ctx.err("mlx5dv_devx_get_async_cmd_comp", errno)
	})
	return id, ok, err
}

// deliver decodes the result in out into the dst of its query. Its results are those of Next.
func (q *AsyncQueries) deliver(wrID uint64) (id uint64, ok bool, err error) {
	a, known := q.forget(wrID)
	if !known {
		return 0, false, fmt.Errorf("%s: result %d belongs to no query: %w", q.device, wrID, syscall.EPROTO)
	}
	if err := q.dx.commandErr("mlx5dv_devx_obj_query_async (QUERY_FLOW_COUNTER)", 0, q.out); err != nil {
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

	// Outside of the object's lock: this waits for a Next that is about to read, which takes that lock.
	q.events.close()
	return err
}
