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
// Lock order: mu of an object before mu of its parents, and mu before heldMu. A call on a child
// that needs a parent's handle takes both in this order.
type object struct {
	kind   string // "queue pair"
	device string // "mlx5_0"; empty for the library

	mu     sync.RWMutex
	h      handle // valid while open
	closed bool

	heldMu  sync.Mutex
	parents []*object
	holders []*object
	// abandoned says that destroying the object, or a former holder of it, has failed: the library may
	// still know that one. See "Lifetimes" in doc.go.
	abandoned bool
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

	// A read lock must not be taken twice: a Close that waits between the two would block both.
	parents = distinct(parents)
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

// distinct returns each object once, in the order of the first.
func distinct(all []*object) (once []*object) {
	for _, o := range all {
		if !slices.Contains(once, o) {
			once = append(once, o)
		}
	}
	return once
}

// use keeps the object open until done, or returns ErrClosed.
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
	o.heldMu.Lock()
	defer o.heldMu.Unlock()

	if slices.Contains(o.parents, parent) {
		return
	}
	o.parents = append(o.parents, parent)
	parent.hold(o)
}

// hold notes a child that holds o.
func (o *object) hold(child *object) {
	o.heldMu.Lock()
	defer o.heldMu.Unlock()
	o.holders = append(o.holders, child)
}

// release is the inverse of hold, for a child that is closed.
func (o *object) release(child *object) {
	o.heldMu.Lock()
	defer o.heldMu.Unlock()

	i := slices.Index(o.holders, child)
	o.holders = slices.Delete(o.holders, i, i+1)
	o.abandoned = o.abandoned || child.abandoned
}

// listHolders names the holders: "2 flows, 1 queue pair". Without any it returns "".
func (o *object) listHolders() string {
	o.heldMu.Lock()
	defer o.heldMu.Unlock()

	var kinds []string
	number := make(map[string]int) // by kind
	for _, h := range o.holders {
		number[h.kind]++
		if number[h.kind] == 1 {
			kinds = append(kinds, h.kind)
		}
	}

	for i, k := range kinds {
		n := number[k]
		if n > 1 {
			k += "s"
		}
		kinds[i] = fmt.Sprintf("%d %s", n, k)
	}
	return strings.Join(kinds, ", ")
}

// close destroys the object, unless it is held. EBUSY leaves it open, because the caller can close
// what keeps it busy; not if that is an abandoned child, which nobody can close.
func (o *object) close(destroy func(handle) error) error {
	o.mu.Lock()
	defer o.mu.Unlock()

	if o.closed {
		return nil
	}
	if holders := o.listHolders(); holders != "" {
		return &busyError{object: o.name(), holders: holders}
	}

	err := destroy(o.h)
	if errors.Is(err, syscall.EBUSY) && !o.abandoned {
		return err
	}

	// Success frees abandoned children, too.
	o.abandoned = err != nil
	o.closed = true
	o.h = 0
	for _, p := range o.parents {
		p.release(o)
	}
	return err
}
