package capture

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/gopacket/gopacket/layers"
)

// Blocks of pcapng that are read. All others are skipped: no memory is kept of them.
const (
	ngInterface    = 1
	ngPacket       = 2 // obsolete
	ngSimplePacket = 3
	ngEnhanced     = 6
	ngSection      = 0x0a0d0d0a
)

// A section of a pcapng file keeps the type and the name of each interface to its end. A block of 20 bytes declares one,
// and a gzip file has thousands of them in a kilobyte, so both are bounded.
const (
	mostInterfaces = 1 << 16
	mostNameBytes  = 1 << 20 // of all names
)

// ErrInterfaces: a section declares more interfaces than a capture has.
var ErrInterfaces = fmt.Errorf("a section has more than %d interfaces, or more than %d bytes of their names", mostInterfaces, mostNameBytes)

// The blocks of a pcapng file have lengths, which must bear one another out.
var errBlock = errors.New("the lengths of a block contradict one another")

// ngReader reads the packets of a pcapng file.
type ngReader struct {
	b          *bufio.Reader
	order      binary.ByteOrder
	interfaces []ngLink
	nameBytes  int
	left       int64 // of the block, with the length at its end
	head       [28]byte
	data       []byte
}

// ngLink is an interface of the section.
type ngLink struct {
	link layers.LinkType
	snap uint32
	name string
}

func newNGReader(b *bufio.Reader) (*ngReader, error) {
	r := &ngReader{b: b}
	kind, err := r.block()
	if err == nil && kind != ngSection {
		err = errors.New("it begins with no section")
	}
	if err == nil {
		err = r.section()
	}
	return r, err
}

// next returns the next packet. Its error is io.EOF at the end of a block only.
func (r *ngReader) next() (packet, error) {
	for {
		kind, err := r.block()
		if err != nil {
			return packet{}, err
		}
		switch kind {
		case ngSection:
			err = r.section()
		case ngInterface:
			err = r.describe()
		case ngPacket, ngSimplePacket, ngEnhanced:
			return r.packet(kind)
		default:
			err = r.end()
		}
		if err != nil {
			return packet{}, err
		}
	}
}

// block reads the type and the length of a block, and the byte order of a section.
func (r *ngReader) block() (kind uint32, err error) {
	head := r.head[:8]
	if _, err := io.ReadFull(r.b, head); err != nil {
		return 0, err
	}
	if binary.LittleEndian.Uint32(head) == ngSection {
		r.left = 4
		magic, err := r.take(4)
		if err != nil {
			return 0, err
		}
		switch uint32(0x1a2b3c4d) {
		case binary.LittleEndian.Uint32(magic):
			r.order = binary.LittleEndian
		case binary.BigEndian.Uint32(magic):
			r.order = binary.BigEndian
		default:
			return 0, errors.New("a section has no byte order")
		}
		r.left = int64(r.order.Uint32(r.head[4:])) - 12
	} else {
		if r.order == nil {
			return 0, errors.New("it begins with no section")
		}
		r.left = int64(r.order.Uint32(head[4:])) - 8
	}
	if r.left < 4 {
		return 0, errBlock
	}
	return r.order.Uint32(head), nil
}

// take reads bytes of the block, at most len(r.head)-8.
func (r *ngReader) take(n int) ([]byte, error) {
	if int64(n) > r.left {
		return nil, errBlock
	}
	r.left -= int64(n)
	b := r.head[8 : 8+n]
	_, err := io.ReadFull(r.b, b)
	return b, within(err)
}

// end skips the rest of the block.
func (r *ngReader) end() error {
	for r.left > 0 {
		n, err := r.b.Discard(int(min(r.left, 1<<30)))
		r.left -= int64(n)
		if err != nil {
			return within(err)
		}
	}
	return nil
}

// within is an error inside of a block, where the end of the file is no end of the capture.
func within(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (r *ngReader) section() error {
	b, err := r.take(12)
	if err != nil {
		return err
	}
	major, minor := r.order.Uint16(b), r.order.Uint16(b[2:])
	if major != 1 || minor != 0 && minor != 2 { // 1.2 is 1.0
		return fmt.Errorf("a section has the version %d.%d", major, minor)
	}
	r.interfaces = r.interfaces[:0]
	r.nameBytes = 0
	return r.end()
}

// describe reads the description of an interface.
func (r *ngReader) describe() error {
	b, err := r.take(8)
	if err != nil {
		return err
	}
	in := ngLink{link: layers.LinkType(r.order.Uint16(b)), snap: r.order.Uint32(b[4:])}
	for r.left > 4 {
		option, err := r.take(4)
		if err != nil {
			return err
		}
		code, length := r.order.Uint16(option), int64(r.order.Uint16(option[2:]))
		if code == 0 {
			break
		}
		padded := (length + 3) &^ 3
		if padded > r.left-4 {
			return errBlock
		}
		if code == 2 {
			if r.nameBytes += int(length); r.nameBytes > mostNameBytes {
				return ErrInterfaces
			}
			name := make([]byte, length)
			if _, err := io.ReadFull(r.b, name); err != nil {
				return within(err)
			}
			in.name = string(name)
			r.left -= length
			padded -= length
		}
		n, err := r.b.Discard(int(padded))
		r.left -= int64(n)
		if err != nil {
			return within(err)
		}
	}
	if len(r.interfaces) == mostInterfaces {
		return ErrInterfaces
	}
	r.interfaces = append(r.interfaces, in)
	return r.end()
}

func (r *ngReader) packet(kind uint32) (p packet, err error) {
	var index, captured uint32
	if kind == ngSimplePacket {
		b, err := r.take(4)
		if err != nil {
			return packet{}, err
		}
		p.length = int(r.order.Uint32(b))
		captured = r.order.Uint32(b)
		if len(r.interfaces) > 0 && r.interfaces[0].snap != 0 {
			captured = min(captured, r.interfaces[0].snap)
		}
	} else {
		b, err := r.take(20)
		if err != nil {
			return packet{}, err
		}
		index = r.order.Uint32(b)
		if kind == ngPacket {
			index = uint32(r.order.Uint16(b))
		}
		captured = r.order.Uint32(b[12:])
		p.length = int(r.order.Uint32(b[16:]))
	}
	if int64(index) >= int64(len(r.interfaces)) {
		return packet{}, fmt.Errorf("interface %d is not in its section, which has %d", index, len(r.interfaces))
	}
	in := &r.interfaces[index]
	p.link, p.name = in.link, in.name
	switch {
	case captured > snapLength:
		return packet{}, fmt.Errorf("capture length exceeds snap length: %d > %d", captured, snapLength)
	case int64(captured) > r.left-4:
		return packet{}, errBlock
	}
	if cap(r.data) < int(captured) {
		r.data = make([]byte, captured)
	}
	p.data = r.data[:captured]
	if _, err := io.ReadFull(r.b, p.data); err != nil {
		return packet{}, within(err)
	}
	r.left -= int64(captured)
	return p, r.end()
}
