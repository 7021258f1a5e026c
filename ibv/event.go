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

// AsyncEvent is an asynchronous event of a device. It names the object that it concerns; the other
// fields are nil, or 0.
type AsyncEvent struct {
	Type EventType
	Port int // of port, LID, P_Key, SM, GID events
	QP   *QP // nil also when it was closed meanwhile
	CQ   *CQ // nil also when it was closed meanwhile
}

// NextEvent waits for the next event of the device and acknowledges it. It holds no thread while it
// waits. It ends when ctx ends, or when the Context is closed (ErrClosed). Only one caller may wait
// at a time. The kernel queues events until they are read.
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
			// First look the object up, then acknowledge: the library destroys an object only after its
			// events were acknowledged, and may then give the address to another one.
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
