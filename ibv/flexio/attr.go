package flexio

import (
	"errors"
	"fmt"
)

// ErrAttr: attributes that the reference or the width of the device's field does not
// allow. Every one that Validate finds is an [AttrError] that wraps it.
var ErrAttr = errors.New("invalid attribute")

// AttrError names an invalid attribute and the reason.
type AttrError struct {
	Struct string // in the words of the reference: flexio_cq_attr
	Field  string // cq_period, or cq_ring_qmem.daddr of a structure within
	Reason string
}

func (e *AttrError) Error() string {
	return fmt.Sprintf("checking %s.%s: %s", e.Struct, e.Field, e.Reason)
}

func (e *AttrError) Unwrap() error { return ErrAttr }

// DPAAddr is an address in the memory of the DPA, the processor in the device (flexio_uintptr_t). 0
// means no address.
type DPAAddr uint64

// HostAddr is an address in the memory of the process that calls the SDK (void * or a
// function there). It is a number here: nothing is read from it. 0 is NULL.
type HostAddr uint64

// Object is an object of the SDK or of libibverbs to which an attribute points:
// flexio_thread, ibv_pd and the like. The reference does not describe them. A nil
// *Object is NULL.
type Object struct {
	ID uint32 // the number by which the device knows it
}

// Access is a mask of enum ibv_access_flags.
type Access uint32

// The kinds of access that an MKey or a QP of Flex IO takes.
const (
	AccessLocalWrite   Access = 1 << 0
	AccessRemoteWrite  Access = 1 << 1
	AccessRemoteRead   Access = 1 << 2
	AccessRemoteAtomic Access = 1 << 3
)

// checks collects the errors of one structure.
type checks struct {
	of     string // the reference's name of the structure
	prefix string // of the fields, within a structure that it holds
	errs   []error
}

// refuse adds a reason against the field.
func (c *checks) refuse(field, format string, args ...any) {
	c.errs = append(c.errs, &AttrError{Struct: c.of, Field: c.prefix + field, Reason: fmt.Sprintf(format, args...)})
}

// fits refuses a value that the device's field of so many bits does not hold.
func (c *checks) fits(field string, v uint64, bits int) {
	if v >= 1<<bits {
		c.refuse(field, "%d does not fit the device's field of %d bits: at most %d", v, bits, uint64(1)<<bits-1)
	}
}

// known refuses a value outside its enumeration.
func (c *checks) known(field string, v fmt.Stringer, ok bool) {
	if !ok {
		c.refuse(field, "%s is unknown", v)
	}
}

// within checks the structure that the field holds.
func (c *checks) within(field string, check func(*checks)) {
	was := c.prefix
	c.prefix += field + "."
	check(c)
	c.prefix = was
}

func (c *checks) err() error { return errors.Join(c.errs...) }

// name returns the name of an enumeration's value, or kind and number of an unknown one.
func name[E ~uint8 | ~uint32](names map[E]string, kind string, v E) string {
	if s, ok := names[v]; ok {
		return s
	}
	return fmt.Sprintf("%s %d", kind, v)
}
