package flexio

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrShort is returned for fewer bytes than the structure has.
var ErrShort = errors.New("too short")

// noLayout is why an argument of the SDK's host library has no bytes.
const noLayout = "an argument of the SDK's host library, of which the reference gives fields and no layout: Validate checks it"

// Decode reads a structure of queue memory from the beginning of b, for example "flexio_dev_wqe_ctrl_seg". Every pattern
// of bits is valid, and every field is in the result. If b is shorter than the structure, Decode returns ErrShort. It
// is not for hot paths: [Ring] reads completions.
func Decode(structure string, b []byte) (Values, error) {
	t, err := lookup(structure)
	if err != nil {
		return nil, err
	}
	if t.size == 0 {
		return nil, &AttrError{Struct: structure, Reason: noLayout}
	}
	if len(b) < t.size {
		return nil, fmt.Errorf("decoding %s from %d bytes, it has %d: %w", structure, len(b), t.size, ErrShort)
	}

	v := make(Values, len(t.fields))
	for _, f := range t.fields {
		at := b[f.first/8:]
		switch f.kind {
		case octets:
			v[f.name] = append([]byte(nil), at[:f.width/8]...)
		case inner:
			if v[f.name], err = Decode(f.of, at[:f.width/8]); err != nil {
				return nil, err
			}
		default:
			v[f.name] = getBits(b, f.first, f.width)
		}
	}
	return v, nil
}

// Append appends the bytes of a structure to b. It is the inverse of Decode: fields that are not given are 0. It returns
// an [AttrError] for each field that does not fit, and for two fields that contradict each other in the same bytes. Of
// flexio_dev_sqe_seg, give the one segment.
func Append(b []byte, structure string, v Values) ([]byte, error) {
	c := checks{of: structure}
	out := c.encode(structure, v)
	if err := c.err(); err != nil {
		return b, err
	}
	return append(b, out...), nil
}

// encode returns the bytes of a structure. If it refuses a field, the bytes mean nothing.
func (c *checks) encode(structure string, v Values) []byte {
	t := c.check(structure, v)
	if len(c.errs) > 0 {
		return nil
	}
	if t.union {
		for _, f := range t.fields {
			if seg, ok := v[f.name].(Values); ok {
				return c.encodeInner(f, seg)
			}
		}
	}
	if t.size == 0 {
		c.refuse("", noLayout)
		return nil
	}

	out := make([]byte, t.size)
	for _, f := range t.fields {
		at := out[f.first/8:]
		switch val, ok := v[f.name]; {
		case !ok:
		case f.kind == octets:
			b, _ := toBytes(val)
			for i := range b {
				at[i] |= b[i]
			}
		case f.kind == inner:
			copy(at, c.encodeInner(f, val.(Values)))
		default:
			n, _ := f.toNumber(val)
			putBits(out, f.first, f.width, n)
		}
	}

	// Two fields may be readings of the same bytes.
	for _, f := range t.fields {
		val, ok := v[f.name]
		if !ok {
			continue
		}
		same := true
		switch f.kind {
		case octets:
			b, _ := toBytes(val)
			same = string(b) == string(out[f.first/8:][:f.width/8])
		case number:
			n, _ := f.toNumber(val)
			same = n == getBits(out, f.first, f.width)
		}
		if !same {
			c.refuse(f.name, "contradicts another field of the same bytes")
		}
	}
	return out
}

// encodeInner returns the bytes of a nested structure.
func (c *checks) encodeInner(f field, v Values) []byte {
	defer c.within(f.name)()
	return c.encode(f.of, v)
}

// putBits and getBits access a field within one big-endian dword, or a field of two whole dwords.
func putBits(b []byte, first, width int, n uint64) {
	if width == 64 {
		at := b[first/8:]
		binary.BigEndian.PutUint64(at, binary.BigEndian.Uint64(at)|n)
		return
	}
	word := b[first/32*4:]
	shift := 32 - first%32 - width
	binary.BigEndian.PutUint32(word, binary.BigEndian.Uint32(word)|uint32(n)<<shift)
}

func getBits(b []byte, first, width int) uint64 {
	if width == 64 {
		return binary.BigEndian.Uint64(b[first/8:])
	}
	shift := 32 - first%32 - width
	return uint64(binary.BigEndian.Uint32(b[first/32*4:])) >> shift & (1<<width - 1)
}
