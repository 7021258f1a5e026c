package flexio

import (
	"errors"
	"fmt"
)

// ErrAttr is in every [AttrError]: an attribute breaks a rule of the reference, or does not fit into the device's
// field.
var ErrAttr = errors.New("invalid attribute")

// AttrError names an invalid attribute and the reason.
type AttrError struct {
	Struct string // name in the reference, for example "flexio_cq_attr"
	Field  string // "cq_period", or "cq_ring_qmem.daddr" in a nested structure
	Reason string
}

func (e *AttrError) Error() string {
	return fmt.Sprintf("checking %s.%s: %s", e.Struct, e.Field, e.Reason)
}

func (e *AttrError) Unwrap() error { return ErrAttr }

// DPAAddr is an address in the memory of the DPA, the device's processor (flexio_uintptr_t). 0 means no address.
type DPAAddr uint64

// HostAddr is an address in the process that calls the SDK: a void * or a function there. This package never reads
// from it. 0 is NULL.
type HostAddr uint64

// Object is an object of the SDK or of libibverbs, for example a flexio_thread or an ibv_pd. Attributes point to
// objects, but the reference does not describe them. A nil *Object is NULL.
type Object struct {
	ID uint32 // the device's number of the object
}

// Access is a mask of enum ibv_access_flags.
type Access uint32

// The kinds of access for an MKey or a QP of Flex IO.
const (
	AccessLocalWrite   Access = 1 << 0
	AccessRemoteWrite  Access = 1 << 1
	AccessRemoteRead   Access = 1 << 2
	AccessRemoteAtomic Access = 1 << 3
)

// checks collects the errors of one structure.
type checks struct {
	of     string // the structure's name in the reference
	prefix string // prefix of field names while checking a nested structure
	errs   []error
}

// refuse adds an AttrError about the field.
func (c *checks) refuse(field, format string, args ...any) {
	c.errs = append(c.errs, &AttrError{Struct: c.of, Field: c.prefix + field, Reason: fmt.Sprintf(format, args...)})
}

// fits refuses a value of more than the given number of bits.
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

// within runs check on the nested structure in the field.
func (c *checks) within(field string, check func(*checks)) {
	was := c.prefix
	c.prefix += field + "."
	check(c)
	c.prefix = was
}

func (c *checks) err() error { return errors.Join(c.errs...) }

// name returns the name of a value, or kind and number if the value is unknown.
func name[E ~uint8 | ~uint32](names map[E]string, kind string, v E) string {
	if s, ok := names[v]; ok {
		return s
	}
	return fmt.Sprintf("%s %d", kind, v)
}
