package ibv

import (
	"context"
	"syscall"
)

// EventType is enum ibv_event_type; ibv_get_async_event(3) explains each.
type EventType uint32

// The events of queue pairs, completion queues, ports and the device.
const (
	EventCQErr EventType = iota
	EventQPFatal
	EventQPReqErr
	EventQPAccessErr
	EventCommEst
	EventSQDrained
	EventPathMig
	EventPathMigErr
	EventDeviceFatal
	EventPortActive
	EventPortErr
	EventLIDChange
	EventPKeyChange
	EventSMChange
	EventSRQErr
	EventSRQLimitReached
	EventQPLastWQEReached
	EventClientReregister
	EventGIDChange
	EventWQFatal
)

func (t EventType) String() string {
	return name("event", t, "CQ error", "QP fatal", "QP request error", "QP access error", "communication established",
		"SQ drained", "path migrated", "path migration error", "device fatal", "port active", "port error", "LID change",
		"P_Key change", "SM change", "SRQ error", "SRQ limit reached", "QP last WQE reached", "client reregistration",
		"GID change", "WQ fatal")
}

// AsyncEvent is an asynchronous event of a device. At most one of Port, QP and CQ is set: the subject of
// the event. QP and CQ are also nil if the object has been closed since.
type AsyncEvent struct {
	Type EventType
	Port int // of port, LID, P_Key, SM and GID events
	QP   *QP
	CQ   *CQ
}

// NextEvent waits for the next event of the device and acknowledges it, without blocking a thread. It
// returns early when ctx ends, or when the Context is closed (ErrClosed). Only one goroutine should wait
// at a time: a second one waits for the first, even beyond the end of its own ctx. The kernel queues
// events until they are read.
func (c *Context) NextEvent(ctx context.Context) (AsyncEvent, error) {
	var a AsyncEvent
	err := c.events.wait(ctx, func() (bool, error) {
		if err := c.use(); err != nil {
			return false, err
		}
		defer c.done()

		e, errno := c.v.getEvent(c.h)
		switch errno {
		case 0:
			// Look up the object before acknowledging the event. The library does not destroy an object
			// with unacknowledged events. Afterwards it may reuse the address for another object.
			a = c.event(e)
			c.v.ackEvent(e)
			return true, nil
		case syscall.EAGAIN, syscall.EINTR:
			return false, nil
		}
		return true, c.err("ibv_get_async_event", errno)
	})
	return a, err
}

// event converts e and looks up the object that it names.
func (c *Context) event(e event) AsyncEvent {
	a := AsyncEvent{Type: e.typ}
	c.handleMu.Lock()
	defer c.handleMu.Unlock()

	switch e.typ {
	case EventCQErr:
		a.CQ = c.cqByHandle[handle(e.element)]
	case EventQPFatal, EventQPReqErr, EventQPAccessErr, EventCommEst, EventSQDrained, EventPathMig, EventPathMigErr, EventQPLastWQEReached:
		a.QP = c.qpByHandle[handle(e.element)]
	case EventPortActive, EventPortErr, EventLIDChange, EventPKeyChange, EventSMChange, EventClientReregister, EventGIDChange:
		a.Port = int(int32(e.element)) // an int of the C union
	case EventDeviceFatal:
		c.fatalSeen.Store(true)
	}
	return a
}
