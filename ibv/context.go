package ibv

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
)

// Context is an open device.
type Context struct {
	object
	lib    *Library
	v      verbs // the library's, with the device's calls named
	events *eventFile
	gone   atomic.Bool // DEVICE_FATAL was seen

	byHandle sync.Mutex // guards the maps from handles in events to objects
	qps      map[handle]*QP
	cqs      map[handle]*CQ

	leaving sync.Mutex
	left    [][]byte // mappings that the device may still write to
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

// keepMapped keeps mem mapped until the device is closed.
func (c *Context) keepMapped(mem []byte) {
	c.leaving.Lock()
	defer c.leaving.Unlock()
	c.left = append(c.left, mem)
}

// unmapLeft unmaps the memory of abandoned regions, after the device was closed.
func (c *Context) unmapLeft() (err error) {
	c.leaving.Lock()
	defer c.leaving.Unlock()
	for _, mem := range c.left {
		err = errors.Join(err, syscall.Munmap(mem))
	}
	c.left = nil
	return err
}

// Close closes the device. It ends a NextEvent that waits.
func (c *Context) Close() error {
	err := c.close(func(h handle) error {
		if err := c.err("ibv_close_device", c.v.closeDevice(h)); err != nil {
			return err
		}
		return c.unmapLeft()
	})
	// Not earlier: a refused Close changes nothing. Not under the lock: this waits for a NextEvent
	// that is about to read.
	if c.use() != nil {
		c.events.close()
	} else {
		c.done()
	}
	return err
}
