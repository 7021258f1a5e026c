package ibv

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// handle is the address of an object in the library's memory, or 0 for no object. Go code never
// dereferences it.
type handle uintptr

// object is the common part of all objects. It knows its parents and holders, and whether it is
// closed. Calls take mu for reading and Close takes it for writing, so no call ever uses a freed
// object.
//
// Lock order: mu of an object before mu of its parents, and mu before heldMu. For example, a call on
// a child takes both if it needs a parent's handle.
type object struct {
	kind   string // "queue pair"
	device string // "mlx5_0"; empty for the library

	mu     sync.RWMutex
	h      handle // valid while open
	closed bool

	heldMu  sync.Mutex
	parents []*object
	holders []*object
	// abandoned is set when destroying this object, or one of its former holders, has failed. The
	// library may still use the object then. See "Lifetimes" in doc.go.
	abandoned bool
}

// name returns the object's name for errors.
func (o *object) name() string {
	if o.device == "" {
		return o.kind
	}
	return o.device + ": " + o.kind
}

// init makes the object with create, and lets it hold the parents. Call it once, before another
// goroutine can reach the object. After an error no parent is held.
func (o *object) init(kind, device string, create func() (handle, error), parents ...*object) (err error) {
	o.kind, o.device = kind, device

	// Never take a read lock twice. If a Close waits between the two, neither can continue.
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

// distinct removes repeated objects from the list. The order stays.
func distinct(all []*object) (once []*object) {
	for _, o := range all {
		if !slices.Contains(once, o) {
			once = append(once, o)
		}
	}
	return once
}

// use keeps the object open until the caller calls done. It returns ErrClosed if the object is closed:
// then done must not be called.
func (o *object) use() error {
	o.mu.RLock()
	if o.closed {
		o.mu.RUnlock()
		return fmt.Errorf("%s: %w", o.name(), ErrClosed)
	}
	return nil
}

func (o *object) done() { o.mu.RUnlock() }

// adopt adds a parent, which o holds until o is closed. The caller has called use on both.
func (o *object) adopt(parent *object) {
	o.heldMu.Lock()
	defer o.heldMu.Unlock()

	if slices.Contains(o.parents, parent) {
		return
	}
	o.parents = append(o.parents, parent)
	parent.hold(o)
}

// hold adds child to the holders of o.
func (o *object) hold(child *object) {
	o.heldMu.Lock()
	defer o.heldMu.Unlock()
	o.holders = append(o.holders, child)
}

// release removes a closed child from the holders of o.
func (o *object) release(child *object) {
	o.heldMu.Lock()
	defer o.heldMu.Unlock()

	i := slices.Index(o.holders, child)
	o.holders = slices.Delete(o.holders, i, i+1)
	o.abandoned = o.abandoned || child.abandoned
}

// listHolders describes the holders, for example "2 flows, 1 queue pair", or returns "" if there are
// none.
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

// close destroys the object, unless it is held. EBUSY leaves the object open: the caller can close
// whatever keeps it busy, and try again. The exception is an abandoned child, which nobody can close.
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

	// On success the library has freed abandoned children, too.
	o.abandoned = err != nil
	o.closed = true
	o.h = 0
	for _, p := range o.parents {
		p.release(o)
	}
	return err
}
