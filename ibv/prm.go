package ibv

import "fmt"

// prmCodec walks the fields of a structure of the PRM, the manual of mlx5 firmware. Structures are big
// endian. A field has a width and a position in bits, counted from the most significant bit of the first
// byte.
//
// Each structure has one method prm. Depending on the mode, it encodes, decodes, or lists the fields, so the
// three cannot differ.
type prmCodec struct {
	b    []byte
	mode prmMode
	list []prmField // result of prmList
	err  error      // prmEncode: the first value wider than its field
}

type prmMode uint8

const (
	prmEncode prmMode = iota
	prmDecode
	prmList
)

// prmField is a field of mlx5_ifc.h: its name, the number of bits before it, and its width in bits.
type prmField struct {
	name       string
	bit, width int
}

// prmStruct is a PRM structure, or a section of one.
type prmStruct interface{ prm(c *prmCodec) }

// encodePRM appends s as size bytes. It returns an error if a value is wider than its field.
func encodePRM(b []byte, size int, s prmStruct) ([]byte, error) {
	at := len(b)
	b = pad(b, at+size)
	c := prmCodec{b: b[at:], mode: prmEncode}
	s.prm(&c)
	return b, c.err
}

// decodePRM reads s from b, which must be long enough for all its fields.
func decodePRM(b []byte, s prmStruct) {
	s.prm(&prmCodec{b: b, mode: prmDecode})
}

// field walks a number of up to 64 bits. It may begin at any bit.
func field[T uint8 | uint16 | uint32 | uint64](c *prmCodec, name string, bit, width int, v *T) {
	switch c.mode {
	case prmList:
		c.list = append(c.list, prmField{name, bit, width})
	case prmDecode:
		var n uint64
		for i := bit; i < bit+width; i++ {
			n = n<<1 | uint64(c.b[i/8]>>(7-i%8)&1)
		}
		*v = T(n)
	default:
		n := uint64(*v)
		if width < 64 && n>>width != 0 {
			if c.err == nil {
				c.err = fmt.Errorf("%s %#x: the field has %d bits", name, n, width)
			}
			return
		}
		for i := bit + width - 1; i >= bit; i-- {
			c.b[i/8] |= byte(n&1) << (7 - i%8)
			n >>= 1
		}
	}
}

// octets walks a field of whole bytes in network order, for example an address.
func octets(c *prmCodec, name string, bit int, v []byte) {
	switch c.mode {
	case prmList:
		c.list = append(c.list, prmField{name, bit, 8 * len(v)})
	case prmDecode:
		copy(v, c.b[bit/8:])
	default:
		copy(c.b[bit/8:], v)
	}
}

// flag walks a field of one bit.
func flag(c *prmCodec, name string, bit int, v *bool) {
	var n uint8
	if *v {
		n = 1
	}
	field(c, name, bit, 1, &n)
	*v = n == 1
}
