package ibv

import (
	"sync"
	"sync/atomic"
	"syscall"
)

// Context is an open device.
type Context struct {
	object
	lib    *Library
	events *eventFile
	gone   atomic.Bool // DEVICE_FATAL was seen

	byHandle sync.Mutex // what events name
	qps      map[handle]*QP
	cqs      map[handle]*CQ
}

// Device is the device's name.
func (c *Context) Device() string { return c.device }

// err is nil for errno 0, and an *Error otherwise.
func (c *Context) err(verb string, errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return &Error{Verb: verb, Device: c.device, Errno: errno, gone: errno == syscall.EIO && c.gone.Load()}
}

// remember puts an object where events find it by its address.
func remember[T any](c *Context, table map[handle]*T, h handle, o *T) {
	c.byHandle.Lock()
	defer c.byHandle.Unlock()
	table[h] = o
}

// forget is the inverse, after the object was destroyed: by then the library may have given
// the address to the next one, whose entry stays.
func forget[T any](c *Context, table map[handle]*T, h handle, o *T) {
	c.byHandle.Lock()
	defer c.byHandle.Unlock()
	if table[h] == o {
		delete(table, h)
	}
}

// QueryDevice reads the device's attributes.
func (c *Context) QueryDevice() (DeviceAttr, error) {
	var a DeviceAttr
	if err := c.use(); err != nil {
		return a, err
	}
	defer c.done()
	return a, c.err("ibv_query_device", c.lib.v.queryDevice(c.h, &a))
}

// QueryPort reads the attributes of a port; the first is 1.
func (c *Context) QueryPort(port uint8) (PortAttr, error) {
	var a PortAttr
	if err := c.use(); err != nil {
		return a, err
	}
	defer c.done()
	return a, c.err("ibv_query_port", c.lib.v.queryPort(c.h, port, &a))
}

// CompCntrCaps is struct ibv_comp_cntr_caps: what the device's completion counters can do.
type CompCntrCaps struct {
	MaxValue             uint64 // a counter goes to 0 past it
	MaxCounters          uint32
	SupportedQPAttachOps uint32 // IBV_QP_ATTACH_COMP_CNTR_OP_*
}

// QueryCompCntrCaps asks for the device's completion counters (rdma-core 65, IBVERBS_1.18).
func (c *Context) QueryCompCntrCaps() (CompCntrCaps, error) {
	if err := c.use(); err != nil {
		return CompCntrCaps{}, err
	}
	defer c.done()
	caps, errno := c.lib.v.queryCompCntrCaps(c.h)
	return caps, c.err("ibv_query_comp_cntr_caps", errno)
}

// Close closes the device. It ends a NextEvent that waits.
func (c *Context) Close() error {
	err := c.close(func(h handle) error {
		return c.err("ibv_close_device", c.lib.v.closeDevice(h))
	})
	// Not before: a refused Close changes nothing. Not under the lock: this waits for
	// a NextEvent that is about to look.
	if c.use() != nil {
		c.events.close()
	} else {
		c.done()
	}
	return err
}
