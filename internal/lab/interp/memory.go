package interp

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
)

// lineSize is the size of a cache line, in bytes.
const lineSize = 64

// Memory is what a program can address: regions far from each other.
type Memory struct {
	regions []region // by address
}

type region struct {
	name  string
	base  uint64
	bytes []byte
	lines bool // a run counts its cache lines
}

// Map maps bytes into the memory of a program, and returns their address. The name is for errors.
func (m *Memory) Map(name string, bytes []byte) uint64 { return m.add(name, bytes, false) }

func (m *Memory) add(name string, bytes []byte, lines bool) uint64 {
	base := uint64(1) << 32
	if n := len(m.regions); n > 0 {
		last := m.regions[n-1]
		base = (last.base + uint64(len(last.bytes)) + 1<<32) &^ (1<<32 - 1)
	}
	m.regions = append(m.regions, region{name, base, bytes, lines})
	return base
}

// at returns the size bytes at an address, and their region.
func (m *Memory) at(addr uint64, size int) ([]byte, *region, error) {
	i, exact := slices.BinarySearchFunc(m.regions, addr, func(r region, addr uint64) int { return cmp.Compare(r.base, addr) })
	if !exact {
		i--
	}
	if i < 0 {
		return nil, nil, fmt.Errorf("accessing address %#x: below all memory", addr)
	}

	r := &m.regions[i]
	offset := addr - r.base
	if offset+uint64(size) > uint64(len(r.bytes)) {
		return nil, nil, fmt.Errorf("accessing %d bytes at offset %d of %s, which has %d", size, offset, r.name, len(r.bytes))
	}
	return r.bytes[offset:][:size], r, nil
}

func storeUint(b []byte, v uint64) {
	switch len(b) {
	case 1:
		b[0] = byte(v)
	case 2:
		binary.NativeEndian.PutUint16(b, uint16(v))
	case 4:
		binary.NativeEndian.PutUint32(b, uint32(v))
	default:
		binary.NativeEndian.PutUint64(b, v)
	}
}
