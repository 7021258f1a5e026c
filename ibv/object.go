package ibv

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// handle is the address of an object in the library's memory; 0 means no object. It is never
// dereferenced in Go.
type handle uintptr

// object is the common part of all objects: the objects that hold it, the objects that it holds,
// and whether it is closed. Calls share mu and Close takes it alone, so no call meets a freed
// object.
//
// Locks are taken from the child up: an object's mu, then a parent's.
type object struct {
	kind    string    // "queue pair"
	device  string    // "mlx5_0"; empty for the library
	parents []*object // guarded by held, as holders are

	mu        sync.RWMutex
	h         handle // valid while open
	closed    bool
	abandoned bool // to the library's knowledge it, or something that held it, lives on: see doc.go

	held    sync.Mutex
	holders []*object
}

// name is how errors call the object.
func (o *object) name() string {
	if o.device == "" {
		return o.kind
	}
	return o.device + ": " + o.kind
}

// init holds the parents and makes the object with create. It is called once, before another
// goroutine can reach the object. After an error no parent is held.
func (o *object) init(kind, device string, create func() (handle, error), parents ...*object) (err error) {
	o.kind, o.device = kind, device
	parents = distinct(parents) // locked once each
	for _, p := range parents {
		if err := p.use(); err != nil {
			return err
		}
		defer p.done()
	}
	if o.h, err = create(); err != nil {
		return err
	}
	o.parents = parents
	for _, p := range parents {
		p.hold(o)
	}
	return nil
}

func distinct(all []*object) (once []*object) {
	for _, o := range all {
		if !slices.Contains(once, o) {
			once = append(once, o)
		}
	}
	return once
}

// use keeps the object open until done.
func (o *object) use() error {
	o.mu.RLock()
	if o.closed {
		o.mu.RUnlock()
		return fmt.Errorf("%s: %w", o.name(), ErrClosed)
	}
	return nil
}

func (o *object) done() { o.mu.RUnlock() }

// adopt has o hold one more parent until it is closed. The caller uses both.
func (o *object) adopt(parent *object) {
	o.held.Lock()
	defer o.held.Unlock()
	if slices.Contains(o.parents, parent) {
		return
	}
	o.parents = append(o.parents, parent)
	parent.hold(o)
}

func (o *object) hold(child *object) {
	o.held.Lock()
	defer o.held.Unlock()
	o.holders = append(o.holders, child)
}

func (o *object) release(child *object) {
	o.held.Lock()
	defer o.held.Unlock()
	i := slices.Index(o.holders, child)
	o.holders = slices.Delete(o.holders, i, i+1)
	o.abandoned = o.abandoned || child.abandoned
}

// busy names the holders: "2 flows, 1 queue pair".
func (o *object) busy() string {
	o.held.Lock()
	defer o.held.Unlock()
	var kinds []string
	count := make(map[string]int)
	for _, h := range o.holders {
		if count[h.kind]++; count[h.kind] == 1 {
			kinds = append(kinds, h.kind)
		}
	}
	for i, k := range kinds {
		if n := count[k]; n > 1 {
			k += "s"
			kinds[i] = fmt.Sprintf("%d %s", n, k)
		} else {
			kinds[i] = "1 " + k
		}
	}
	return strings.Join(kinds, ", ")
}

// close destroys the object, unless it is held. If destroy returns EBUSY the object stays open,
// unless an abandoned child keeps it busy.
func (o *object) close(destroy func(handle) error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil
	}
	if holders := o.busy(); holders != "" {
		return &busyError{object: o.name(), holders: holders}
	}
	err := destroy(o.h)
	if errors.Is(err, syscall.EBUSY) && !o.abandoned {
		return err
	}
	o.abandoned = err != nil // after EIO the library has freed abandoned children too
	o.closed, o.h = true, 0
	for _, p := range o.parents {
		p.release(o)
	}
	return err
}
