package ibv

import (
	"context"
	"syscall"
)

// EventType is enum ibv_event_type.
type EventType uint32

// The events.
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

// AsyncEvent is what happened to a device by itself. What it does not concern is nil, or 0.
type AsyncEvent struct {
	Type EventType
	Port int // of port, LID, P_Key, SM, GID events
	QP   *QP // nil also when it was closed meanwhile
	CQ   *CQ
}

// NextEvent waits for the next event of the device and acknowledges it. It holds no
// thread while it waits, and ends when ctx does, or the Context is closed (ErrClosed). One caller at
// a time; events that nobody waits for are kept by the kernel.
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
			a = c.event(e) // before it is acknowledged: until then the address is that object's
			c.v.ackEvent(e)
			return true, nil
		case syscall.EAGAIN, syscall.EINTR:
			return false, nil
		}
		return true, c.err("ibv_get_async_event", errno)
	})
	return a, err
}

// event says in terms of this package what e is about.
func (c *Context) event(e event) AsyncEvent {
	a := AsyncEvent{Type: e.typ}
	c.byHandle.Lock()
	defer c.byHandle.Unlock()
	switch e.typ {
	case EventCQErr:
		a.CQ = c.cqs[handle(e.element)]
	case EventQPFatal, EventQPReqErr, EventQPAccessErr, EventCommEst, EventSQDrained, EventPathMig, EventPathMigErr, EventQPLastWQEReached:
		a.QP = c.qps[handle(e.element)]
	case EventPortActive, EventPortErr, EventLIDChange, EventPKeyChange, EventSMChange, EventClientReregister, EventGIDChange:
		a.Port = int(int32(e.element))
	case EventDeviceFatal:
		c.gone.Store(true)
	}
	return a
}
