package xdp

import (
	"bytes"
	"fmt"
	"slices"
	"sync/atomic"
)

// The meta map is what the next process needs to adopt the other maps. No program reads it. The first word of a record is stored
// last, and commits the record. In 64-bit words:
//
//	header    magic, layout, rules, counters, slots, units, CPUs, bytes of a CPU's block, words of the trees, changes under way, 22 of 0
//	secret    of the hash: multipliers of the halves of each word (36), of the tuples' ids, of the sum
//	tuples    of the hashed masks, 8 of: used, mask (18), 0
//	ports     1024 of: used, index of the interface, name (2), modes of ingress and egress, whether frames begin with IP,
//	          gaps (a byte for each hook, of earlier versions)
//	loaded    the constants of the attached programs: object, need, tuples, by place (8 of) id and flags, key (18)
//	counters  of: 0 or which owner (1, 2) has it, cookie, base packets, base bytes (8 bits: steps), owners (6 each), 3 of 0
//	entries   the directory: a word for each unit
//
// Zero words are reserved: in the header for the number of the committed set, in a counter for the generations of its parts and the
// time of its birth.
const (
	metaMagic  = 0x796c6c6174776f6c // "lowtally"
	metaLayout = 11

	// layoutWithSets is the layout in the header once a set was opened. The maps are those of metaLayout, but versions that know
	// no sets must not adopt them: they would take the rule of an address outside a set for one of every address.
	layoutWithSets = 12

	metaHeader      = 32
	metaUnderWay    = 9 // in the header
	metaTupleWords  = 2 + Words
	metaPortWords   = 8
	metaLoadedWords = 3 + maxTuples*(1+Words)
	metaCountWords  = 19
	metaOwnerWords  = 6
	metaOwnerMax    = metaOwnerWords * 8
	metaInterfaceSz = 16
)

// meta is the meta map, cut into its parts.
type meta struct {
	header   []uint64
	secret   []uint64
	tuples   []uint64
	ports    []uint64
	loaded   []uint64
	counters []uint64
	dir      []uint64

	portByName map[string]uint16 // from the records of ports
}

func metaBytes(g geometry) int {
	s := metaSizes[g.layout]
	words := s.header +
		secretWords +
		maxTuples*metaTupleWords +
		s.ports*metaPortWords +
		metaLoadedWords +
		g.counters*s.counter +
		g.units
	return pages(8 * words)
}

// metaOf cuts mem into the parts of a meta map, according to the layout of g. In earlier layouts the records of counters are
// shorter, so only copyFrom may use such a meta map.
func metaOf(mem []uint64, g geometry) *meta {
	size := metaSizes[g.layout]
	cut := func(n int) []uint64 {
		s := mem[:n:n]
		mem = mem[n:]
		return s
	}
	m := &meta{
		header:   cut(size.header),
		secret:   cut(secretWords),
		tuples:   cut(maxTuples * metaTupleWords),
		ports:    cut(size.ports * metaPortWords),
		loaded:   cut(metaLoadedWords),
		counters: cut(g.counters * size.counter),
		dir:      cut(g.units),
	}
	m.portByName = make(map[string]uint16)
	for n := range uint16(size.ports) {
		if r := m.port(n); n > 0 && r.used() {
			m.portByName[r.name()] = n
		}
	}
	return m
}

// format draws the secret and writes the header. The magic comes last, and commits all maps.
func (m *meta) format(g geometry) {
	drawSecret(m.secret)
	for i, v := range []int{g.layout, g.rules, g.counters, g.slots, g.units, g.cpus, g.block, g.words} {
		atomic.StoreUint64(&m.header[1+i], uint64(v))
	}
	atomic.StoreUint64(&m.header[0], metaMagic)
}

// geometryOf reads the header of a pinned meta map, in this layout or in one known to convert. The error is errUnfinished if the
// process died before the end of format.
func geometryOf(mem []uint64) (geometry, error) {
	h := mem[:metaHeader]
	if h[0] != metaMagic {
		return geometry{}, errUnfinished
	}
	layout := int(h[1])
	if layout == layoutWithSets {
		layout = metaLayout
	}
	if _, known := metaSizes[layout]; !known {
		return geometry{}, fmt.Errorf("%w: layout %d, this version has %d", ErrIncompatible, layout, metaLayout)
	}
	return geometry{
		layout:   layout,
		rules:    int(h[2]),
		counters: int(h[3]),
		slots:    int(h[4]),
		units:    int(h[5]),
		cpus:     int(h[6]),
		block:    int(h[7]),
		words:    int(h[8]),
	}, nil
}

// setWithSets records that a set was opened.
func (m *meta) setWithSets() { atomic.StoreUint64(&m.header[1], layoutWithSets) }

// Changes under way, each a bit in one word of the header.
const (
	rulesComing = 1 << iota // entries in state entryComing are not committed
	setChanging             // a change of several calls has not ended; see Datapath.NoteChange
)

// setUnderWay records that a change begins or ends. The caller must hold Datapath.mu.
func (m *meta) setUnderWay(change uint64, is bool) {
	word := m.header[metaUnderWay] &^ change
	if is {
		word |= change
	}
	atomic.StoreUint64(&m.header[metaUnderWay], word)
}

func (m *meta) underWay(change uint64) bool { return m.header[metaUnderWay]&change != 0 }

func (m *meta) tuple(id uint8) []uint64 { return m.tuples[int(id)*metaTupleWords:][:metaTupleWords] }

func (m *meta) setTuple(id uint8, mask *words) {
	r := m.tuple(id)
	copy(r[1:], mask[:])
	atomic.StoreUint64(&r[0], 1)
}

func (m *meta) clearTuple(id uint8) { atomic.StoreUint64(&m.tuple(id)[0], 0) }

// masks returns the hashed masks by tuple id.
func (m *meta) masks() map[uint8]*words {
	all := map[uint8]*words{}
	for id := range uint8(maxTuples) {
		if r := m.tuple(id); r[0] != 0 {
			all[id] = (*words)(r[1 : 1+Words])
		}
	}
	return all
}

// setLoaded records that every attached program comes from the object with this hash, and has the constants c. An exchange of
// programs begins with clearLoaded and ends with setLoaded.
func (m *meta) setLoaded(object uint64, c constants) {
	m.loaded[1], m.loaded[2] = c.need, uint64(len(c.tuples))
	for i, t := range c.tuples {
		r := m.loadedTuple(i)
		r[0] = uint64(t.Id) | uint64(t.Flags)<<32
		copy(r[1:], t.Key[:])
	}
	atomic.StoreUint64(&m.loaded[0], object)
}

func (m *meta) loadedTuple(place int) []uint64 {
	return m.loaded[3+place*(1+Words):][: 1+Words : 1+Words]
}

// object returns the hash of setLoaded, or 0 during an exchange of programs.
func (m *meta) object() uint64 { return atomic.LoadUint64(&m.loaded[0]) }

func (m *meta) clearLoaded() { atomic.StoreUint64(&m.loaded[0], 0) }

// loadedFrom returns the constants recorded by setLoaded. ok is false if they belong to another object.
func (m *meta) loadedFrom(object uint64) (need uint64, tuples []loadedTuple, ok bool) {
	n := m.loaded[2]
	if atomic.LoadUint64(&m.loaded[0]) != object || n > maxTuples {
		return 0, nil, false
	}
	for i := range int(n) {
		r := m.loadedTuple(i)
		tuples = append(tuples, loadedTuple{
			id:     uint8(r[0]),
			single: r[0]>>32&tupleSingle != 0,
			key:    words(r[1:]),
		})
	}
	return m.loaded[1], tuples, true
}

// counterRecord is the record of a counter: its owner, and the base of its count. It has space for two owner names. The first word
// says which of them is valid, so that a single store renames the owner.
type counterRecord []uint64

func (m *meta) counter(id uint32) counterRecord {
	return m.counters[int(id)*metaCountWords:][:metaCountWords]
}

func (r counterRecord) used() bool     { return atomic.LoadUint64(&r[0]) != 0 }
func (r counterRecord) cookie() uint64 { return r[1] }
func (r counterRecord) base() sums     { return sums{r[2], r[3]<<8 + r[2]} }

// steps returns how many steps of 2^54 bytes the count has passed. See KeepBytes. They share a word with the base, and one store
// writes both.
func (r counterRecord) steps() uint64     { return r[3] >> 56 }
func (r counterRecord) setSteps(n uint64) { atomic.StoreUint64(&r[3], n<<56|r[3]<<8>>8) }

// ownerAt returns the space for the first (1) or the second (2) owner name.
func (r counterRecord) ownerAt(which uint64) []byte {
	return bytesOf(r[4+int(which&1^1)*metaOwnerWords:][:metaOwnerWords])
}

func (r counterRecord) owner() string {
	return string(bytes.TrimRight(r.ownerAt(atomic.LoadUint64(&r[0])), "\x00"))
}

// take gives the counter to an owner.
func (r counterRecord) take(owner string, cookie uint64, base Pair) {
	r[1], r[2], r[3] = cookie, base.Packets, base.Bytes
	r.setOwner(1, owner)
}

// rename changes the owner. If the process dies at any point, the counter has either the old owner or the new one.
func (r counterRecord) rename(owner string) { r.setOwner(3-atomic.LoadUint64(&r[0]), owner) }

func (r counterRecord) setOwner(which uint64, owner string) {
	b := r.ownerAt(which)
	clear(b[copy(b, owner):])
	atomic.StoreUint64(&r[0], which)
}

func (r counterRecord) release() { atomic.StoreUint64(&r[0], 0) }

// portRecord is the record of an interface. Its index among the records is the number of the interface.
type portRecord []uint64

func (m *meta) port(n uint16) portRecord { return m.ports[int(n)*metaPortWords:][:metaPortWords] }

// portOf returns the number of an interface, if it has one.
func (m *meta) portOf(name string) (uint16, bool) {
	n, ok := m.portByName[name]
	return n, ok
}

// number assigns a number to an interface, and takes it away from any other.
func (m *meta) number(n uint16, name string) {
	r := m.port(n)
	if r.used() {
		delete(m.portByName, r.name())
	}
	r.take(name)
	m.portByName[name] = n
}

func (r portRecord) used() bool   { return atomic.LoadUint64(&r[0]) != 0 }
func (r portRecord) ifindex() int { return int(r[1]) }
func (r portRecord) name() string {
	return string(bytes.TrimRight(bytesOf(r[2:4]), "\x00"))
}

func (r portRecord) take(name string) {
	clear(r[1:])
	copy(bytesOf(r[2:4]), name)
	atomic.StoreUint64(&r[0], 1)
}

// setHook records where and how a program is attached. It must precede the pin of the link. mode is "" if no program is attached.
func (r portRecord) setHook(at site, ifindex int, mode string) {
	layer3 := uint64(0)
	if at.layer3 {
		layer3 = 1
	}
	atomic.StoreUint64(&r[1], uint64(ifindex))
	atomic.StoreUint64(&r[6], layer3)
	atomic.StoreUint64(&r[hookWord(at.hook)], uint64(slices.Index(modeNames[:], mode)))
}

// hasGap reports whether a version before the ledger recorded uncounted packets on a hook.
func (r portRecord) hasGap(h Hook) bool {
	return bytesOf(r[7:])[hookWord(h)-hookWord(HookIngress)] != 0
}

func (r portRecord) layer3() bool { return r[6] != 0 }

func (r portRecord) mode(h Hook) string { return modeNames[r[hookWord(h)]%uint64(len(modeNames))] }

func hookWord(h Hook) int {
	if h == HookIngress {
		return 4
	}
	return 5
}

var modeNames = [...]string{"", "native", "generic", "tcx", "dispatcher"}

// loadedTuple describes a tuple as the attached programs know it, according to the meta map.
type loadedTuple struct {
	id     uint8
	single bool
	key    words // of a single tuple
}
