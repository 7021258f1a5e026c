package shm

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
)

// Problem is a broken invariant of a mirror.
type Problem struct {
	Object string // "header", "entry 7", "block 3", "record 0", "history record 12", "file"
	Offset int64  // of the object in the file
	Text   string
}

func (p Problem) String() string { return fmt.Sprintf("%s at %d: %s", p.Object, p.Offset, p.Text) }

// maxProblems is where Check stops: a file of another kind breaks everything.
const maxProblems = 1000

// Check finds every broken invariant of the mirror at path. A writer that works
// on it, or one that was killed at any point, breaks none. An error means that
// the file could not be looked at; a file that is not a mirror is a Problem.
func Check(path string) (ps []Problem, err error) {
	m, err := openMapping(path, ReaderOptions{AnyOwner: true})
	if err != nil {
		if errors.Is(err, ErrTruncated) {
			return []Problem{{Object: "file", Text: err.Error()}}, nil
		}
		return nil, err
	}
	fault := Guard(func() error { ps = append(checkBytes(m.b), checkDevice(path, m.b)...); return nil })
	runtime.KeepAlive(m)
	if fault != nil {
		ps = append(ps, Problem{Object: "file", Text: fault.Error()})
	}
	return ps, nil
}

// checkBytes checks a region.
func checkBytes(b []byte) []Problem {
	v, err := attach(b)
	if err != nil {
		return []Problem{{Object: "header", Text: err.Error()}}
	}
	return v.check()
}

// checker collects problems.
type checker struct {
	v  *view
	ps []Problem
}

func (c *checker) full() bool { return len(c.ps) >= maxProblems }

func (c *checker) add(object string, offset uint64, format string, a ...any) {
	if !c.full() {
		c.ps = append(c.ps, Problem{Object: object, Offset: int64(offset), Text: fmt.Sprintf(format, a...)})
	}
}

// zero reports bytes from to to of the file that are not zero.
func (c *checker) zero(object string, from, to uint64) {
	for i, x := range c.v.b[from:to] {
		if x != 0 {
			c.add(object, from+uint64(i), "reserved byte is %#x, not 0", x)
			return
		}
	}
}

func (v *view) check() []Problem {
	c := &checker{v: v}
	c.header()
	c.catalogue()
	for i := range v.blocks {
		c.block(uint32(i))
	}
	for i := range v.records {
		c.record(uint32(i))
	}
	c.history()
	return c.ps
}

// reservedHeader is where the header must be zero in version 1.
var reservedHeader = [][2]uint64{
	{hdrSections + sections*secSize, hdrChecksum},
	{hdrChecksum + 8, hdrGeneration},
	{hdrTakeovers + 8, hdrHeartbeat},
	{hdrState + 4, hdrCycleBegun},
	{hdrCycleDoneAt + 8, hdrCatalogueChanges},
	{hdrRefused + 8, hdrHistoryIntent},
	{hdrHistoryBase + 8, hdrSuccessor},
	{hdrSupersededAt + 8, hdrDeviceGeneration},
	{hdrDeviceLength + 8, headerSize},
}

func (c *checker) header() {
	v, h := c.v, c.v.hdr
	if h.fileLength != uint64(len(v.b)) {
		c.add("file", 0, "is %d bytes long, the header says %d", len(v.b), h.fileLength)
	}
	for _, r := range reservedHeader {
		c.zero("header", r[0], r[1])
	}
	end := uint64(headerSize)
	for _, s := range v.table {
		if s.count != 0 {
			c.zero("file", end, s.offset)
			end = s.offset + s.length
		}
	}
	c.zero("file", end, uint64(len(v.b)))

	if atomic.LoadUint64(&h.generation) == 0 {
		c.add("header", hdrGeneration, "generation is 0")
	}
	state := State(atomic.LoadUint32(&h.state))
	if state < Boot || state > Superseded {
		c.add("header", hdrState, "state %d is unknown", state)
	}
	if p := atomic.LoadInt64(&h.heartbeatPeriod); p <= 0 {
		c.add("header", hdrHeartbeatPeriod, "heartbeat period is %d ns", p)
	}
	if d := atomic.LoadInt64(&h.coolDown); d < 0 {
		c.add("header", hdrCoolDown, "cool-down is %d ns", d)
	}
	done := atomic.LoadUint64(&h.cycleDone)
	begun := atomic.LoadUint64(&h.cycleBegun)
	if done > begun {
		c.add("header", hdrCycleDone, "cycle %d is done, but only %d begun", done, begun)
	}
	if begun >= 1<<63 { // the next writer's numbers would begin again before long
		c.add("header", hdrCycleBegun, "cycle %d is begun, where no mirror comes", begun)
	}
	if n := atomic.LoadUint32(&h.blocksHigh); int(n) > len(v.blocks) {
		c.add("header", hdrBlocksHigh, "%d blocks used of %d", n, len(v.blocks))
	}
	if n := atomic.LoadUint32(&h.recordsHigh); int(n) > len(v.records) {
		c.add("header", hdrRecordsHigh, "%d records used of %d", n, len(v.records))
	}
}

// catalogue checks every entry, that names are unique, and the fill levels.
func (c *checker) catalogue() {
	v, h := c.v, c.v.hdr
	changes := atomic.LoadUint64(&h.catalogueChanges)
	names := make(map[string]uint32)
	var used [2]int
	var twice []func()
	var e entryMem
	for i := range uint32(len(v.entries)) {
		if c.full() {
			return
		}
		if !c.entry(i, &e) {
			continue
		}
		class := 0
		if i >= v.counters() {
			class = 1
		}
		used[class]++
		name := getString(e.name[:])
		if first, ok := names[name]; ok {
			twice = append(twice, func() {
				c.add(fmt.Sprintf("entry %d", i), v.entryOffset(i)+entName, "name %q is that of entry %d too", name, first)
			})
		}
		names[name] = i
	}
	if atomic.LoadUint64(&h.catalogueChanges) != changes {
		return // a writer is at work: what was read is not of one instant
	}
	for _, report := range twice {
		report()
	}
	// One Add or Remove may be, or have been left, between its entry and the count.
	for class, p := range []*uint32{&h.countersUsed, &h.recordsUsed} {
		if n := int(atomic.LoadUint32(p)); n > used[class]+1 || n < used[class]-1 {
			c.add("header", []uint64{hdrCountersUsed, hdrRecordsUsed}[class], "says %d live, %d are", n, used[class])
		}
	}
}

func (v *view) entryOffset(i uint32) uint64 {
	return v.table[secCatalogue].offset + uint64(i)*entrySize
}
