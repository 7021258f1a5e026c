package capture

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/gopacket/gopacket/layers"
)

// Types of the pcapng blocks that matter here. We skip all others without buffering them.
const (
	ngInterface    = 1
	ngPacket       = 2 // obsolete
	ngSimplePacket = 3
	ngEnhanced     = 6
	ngSection      = 0x0a0d0d0a
)

// Limits on the interfaces of a section. We must remember each interface to the end of its section. A block of 20 bytes
// declares one, and a kilobyte of gzip can have thousands of such blocks.
const (
	mostInterfaces = 1 << 16
	mostNameBytes  = 1 << 20 // of all names
)

// ErrInterfaces: a section declares more interfaces than any real capture.
var ErrInterfaces = fmt.Errorf("a section has more than %d interfaces, or more than %d bytes of their names", mostInterfaces, mostNameBytes)

// errBlock: a pcapng file repeats lengths at several places, and they differ.
var errBlock = errors.New("the lengths of a block contradict one another")

// ngReader reads the packets of a pcapng file.
type ngReader struct {
	b          *bufio.Reader
	order      binary.ByteOrder // of the section; nil before the first
	interfaces []ngLink         // of the section
	nameBytes  int              // of all their names
	left       int64            // unread bytes of the block, including the length at its end
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

// next returns the next packet. The error is io.EOF only if the file ends between two blocks.
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

// block reads the type and the length of a block. At the begin of a section it also reads the byte order.
func (r *ngReader) block() (kind uint32, err error) {
	head := r.head[:8]
	if _, err := io.ReadFull(r.b, head); err != nil {
		return 0, err
	}

	read := int64(len(head)) // of the block
	switch {
	case binary.LittleEndian.Uint32(head) == ngSection: // reads the same in both byte orders
		if err := r.byteOrder(); err != nil {
			return 0, err
		}
		read += 4
	case r.order == nil:
		return 0, errors.New("it begins with no section")
	}
	r.left = int64(r.order.Uint32(head[4:])) - read
	if r.left < 4 {
		return 0, errBlock
	}
	return r.order.Uint32(head), nil
}

// byteOrder reads the byte order of a section.
func (r *ngReader) byteOrder() error {
	r.left = 4 // the block's length needs this byte order, so it is still unknown
	b, err := r.take(4)
	if err != nil {
		return err
	}
	const magic = 0x1a2b3c4d
	switch {
	case binary.LittleEndian.Uint32(b) == magic:
		r.order = binary.LittleEndian
	case binary.BigEndian.Uint32(b) == magic:
		r.order = binary.BigEndian
	default:
		return errors.New("a section has no byte order")
	}
	return nil
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

// section begins a section, and forgets the interfaces of the one before.
func (r *ngReader) section() error {
	b, err := r.take(12)
	if err != nil {
		return err
	}
	major, minor := r.order.Uint16(b), r.order.Uint16(b[2:])
	if major != 1 || minor != 0 && minor != 2 { // the specification has readers treat 1.2 like 1.0
		return fmt.Errorf("a section has the version %d.%d", major, minor)
	}
	r.interfaces = r.interfaces[:0]
	r.nameBytes = 0
	return r.end()
}

// Options of the description of an interface.
const (
	ngEndOfOptions  = 0
	ngInterfaceName = 2
)

// within converts an error of reading inside a block: there, the end of the file is a fault, and not the end of the
// capture.
func within(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
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
		if code == ngEndOfOptions {
			break
		}
		padded := (length + 3) &^ 3
		if padded > r.left-4 {
			return errBlock
		}
		if code == ngInterfaceName {
			if in.name, err = r.name(length); err != nil {
				return err
			}
			padded -= length
		}
		if err := r.skip(padded); err != nil {
			return err
		}
	}

	if len(r.interfaces) == mostInterfaces {
		return ErrInterfaces
	}
	r.interfaces = append(r.interfaces, in)
	return r.end()
}

// name reads the name of an interface. The caller has checked length against the rest of the block.
func (r *ngReader) name(length int64) (string, error) {
	if r.nameBytes += int(length); r.nameBytes > mostNameBytes {
		return "", ErrInterfaces
	}
	name := make([]byte, length)
	if _, err := io.ReadFull(r.b, name); err != nil {
		return "", within(err)
	}
	r.left -= length
	return string(name), nil
}

// packet reads a packet from a block of any of the three kinds.
func (r *ngReader) packet(kind uint32) (p packet, err error) {
	index, captured, length, err := r.packetHead(kind)
	if err != nil {
		return packet{}, err
	}
	if int64(index) >= int64(len(r.interfaces)) {
		return packet{}, fmt.Errorf("interface %d is not in its section, which has %d", index, len(r.interfaces))
	}
	switch {
	case captured > snapLength:
		return packet{}, fmt.Errorf("capture length exceeds snap length: %d > %d", captured, snapLength)
	case int64(captured) > r.left-4:
		return packet{}, errBlock
	}

	if cap(r.data) < int(captured) {
		r.data = make([]byte, captured)
	}
	data := r.data[:captured]
	if _, err := io.ReadFull(r.b, data); err != nil {
		return packet{}, within(err)
	}
	r.left -= int64(captured)
	in := &r.interfaces[index]
	return packet{data: data, length: int(length), link: in.link, name: in.name}, r.end()
}

// packetHead reads the fields before the data of a packet. A simple packet block has only the length of the packet. Its
// interface is the first one, and it captured as much as that interface's snap length allows.
func (r *ngReader) packetHead(kind uint32) (index, captured, length uint32, err error) {
	if kind == ngSimplePacket {
		b, err := r.take(4)
		if err != nil {
			return 0, 0, 0, err
		}
		length = r.order.Uint32(b)
		captured = length
		if len(r.interfaces) > 0 && r.interfaces[0].snap != 0 {
			captured = min(captured, r.interfaces[0].snap)
		}
		return 0, captured, length, nil
	}

	b, err := r.take(20)
	if err != nil {
		return 0, 0, 0, err
	}
	index = r.order.Uint32(b)
	if kind == ngPacket {
		index = uint32(r.order.Uint16(b))
	}
	return index, r.order.Uint32(b[12:]), r.order.Uint32(b[16:]), nil
}

// end skips the rest of the block.
func (r *ngReader) end() error { return r.skip(r.left) }

// skip skips n bytes of the block.
func (r *ngReader) skip(n int64) error {
	for n > 0 {
		done, err := r.b.Discard(int(min(n, 1<<30)))
		n -= int64(done)
		r.left -= int64(done)
		if err != nil {
			return within(err)
		}
	}
	return nil
}
