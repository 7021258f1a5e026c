package ibv

import (
	"context"
	"fmt"
	"sync"
	"syscall"
)

// AsyncQueries receives the results of queries (mlx5dv_devx_cmd_comp). One goroutine can have many bulks
// read at once, and no thread waits. For firmware, each query costs as much as a synchronous one.
type AsyncQueries struct {
	object
	dx     *DevX
	events *eventFile

	mu          sync.Mutex
	lastWRID    uint64
	queryByWRID map[uint64]asyncQuery // started, and without a result

	out []byte // buffer for the largest result; the goroutine in Next owns it
}

// asyncQuery is a started query: the caller's id, and the place for the result.
type asyncQuery struct {
	id  uint64
	dst []FlowCount
}

// AsyncQueries makes a receiver of results. It needs rdma-core 22 and Linux 5.1, or later.
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

// QueryAsync starts a query like that of [FlowCounters.Query], and returns at once. Choose any id: when
// [AsyncQueries.Next] returns it, dst has the result. Do not touch dst before. The counters may be closed
// earlier. If a megabyte of results is unread, QueryAsync returns EAGAIN: call Next first.
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

	// Remember the query first: Next may get the result before queryAsync returns.
	wrID := q.remember(asyncQuery{id, dst})
	errno := f.dx.m.queryAsync(f.h, f.in, prmOutSize+f.asked*trafficCounterSize, wrID, q.h)
	if errno != 0 {
		q.forget(wrID)
	}
	return f.dx.ctx.err("mlx5dv_devx_obj_query_async (QUERY_FLOW_COUNTER)", errno)
}

// remember stores a started query under a new wr_id.
func (q *AsyncQueries) remember(a asyncQuery) (wrID uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()

	q.lastWRID++
	q.queryByWRID[q.lastWRID] = a
	return q.lastWRID
}

// forget removes a started query, because it has a result or was refused.
func (q *AsyncQueries) forget(wrID uint64) (a asyncQuery, known bool) {
	q.mu.Lock()
	defer q.mu.Unlock()

	a, known = q.queryByWRID[wrID]
	delete(q.queryByWRID, wrID)
	return a, known
}

// Next waits for the result of any query, without blocking a thread, and copies it to the query's dst.
// Results come in the order in which firmware completes the queries.
//
// If ok is true, the query id has ended. err is its error, after which dst is unchanged. If ok is false, no
// query has ended: ctx ended, q is closed (ErrClosed), or the device failed.
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

// deliver decodes out into the dst of the query wrID. It returns the results of Next.
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

// Close makes a waiting Next return ErrClosed. The results of started queries are lost.
func (q *AsyncQueries) Close() error {
	err := q.close(func(h handle) error {
		q.dx.m.destroyCmdComp(h)
		return nil
	})

	// Close the events without the object's lock: it waits for a Next about to read, which takes the lock.
	q.events.close()
	return err
}
