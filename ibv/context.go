package ibv

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
)

// Context is an open device, as struct ibv_context. [Library.Open] makes it.
type Context struct {
	object
	lib       *Library
	v         verbs // the library's, with the device's calls named
	events    *eventFile
	fatalSeen atomic.Bool // a DEVICE_FATAL event was read

	// handleMu guards the tables that lead from the address in an event to the object.
	handleMu   sync.Mutex
	qpByHandle map[handle]*QP
	cqByHandle map[handle]*CQ

	// Memory of regions that the device refused to deregister, and may still write to.
	abandonedMu  sync.Mutex
	abandonedMem [][]byte
}

// Device returns the device's name.
func (c *Context) Device() string { return c.device }

// err returns nil for errno 0, and an *Error otherwise. EIO means that the device is gone only after a
// DEVICE_FATAL event. Before, it is an ordinary error of a verb.
func (c *Context) err(verb string, errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return &Error{
		Verb:   verb,
		Device: c.device,
		Errno:  errno,
		gone:   errno == syscall.EIO && c.fatalSeen.Load(),
	}
}

// remember lets events find an object by its address.
func remember[T any](c *Context, table map[handle]*T, h handle, o *T) {
	c.handleMu.Lock()
	defer c.handleMu.Unlock()
	table[h] = o
}

// forget removes a destroyed object from its table. The library may have reused the address for a new
// object by now. The entry is the new object's then, and must stay.
func forget[T any](c *Context, table map[handle]*T, h handle, o *T) {
	c.handleMu.Lock()
	defer c.handleMu.Unlock()
	if table[h] == o {
		delete(table, h)
	}
}

// keepMapped keeps the memory of an abandoned region mapped until the device is closed.
func (c *Context) keepMapped(mem []byte) {
	c.abandonedMu.Lock()
	defer c.abandonedMu.Unlock()
	c.abandonedMem = append(c.abandonedMem, mem)
}

// unmapAbandoned unmaps the memory of abandoned regions. Call it only after closing the device, which
// may write there until then.
func (c *Context) unmapAbandoned() (err error) {
	c.abandonedMu.Lock()
	defer c.abandonedMu.Unlock()

	for _, mem := range c.abandonedMem {
		err = errors.Join(err, syscall.Munmap(mem))
	}
	c.abandonedMem = nil
	return err
}

// Close closes the device. A waiting NextEvent returns ErrClosed.
func (c *Context) Close() error {
	err := c.close(func(h handle) error {
		if err := c.err("ibv_close_device", c.v.closeDevice(h)); err != nil {
			return err
		}
		return c.unmapAbandoned()
	})

	// Close the events last, because a refused Close must change nothing. And close them without the
	// object's lock: events.close waits for a NextEvent about to read, which takes the lock.
	if c.use() != nil {
		c.events.close()
	} else {
		c.done()
	}
	return err
}
