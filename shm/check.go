package shm

import (
	"bytes"
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
	f, _, err := openTrusted(path, ReaderOptions{AnyOwner: true})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var v *view
	fault := Guard(func() error {
		if v, err = attach(fileStore{File: f}); err != nil {
			object := "header"
			if errors.Is(err, ErrTruncated) {
				object = "file"
			}
			ps = []Problem{{Object: object, Text: err.Error()}}
			return nil
		}
		ps = append(v.check(), v.checkDevice(path)...)
		return nil
	})
	runtime.KeepAlive(v)
	if fault != nil {
		ps = append(ps, Problem{Object: "file", Text: fault.Error()})
	}
	return ps, nil
}

// checker collects problems.
type checker struct {
	v       *view
	ps      []Problem
	written []uint32 // by segment: all slots from there on were in a hole of the file
	// holes are where the hole of the file begins and ends that is behind the first and the second copies in use, of the
	// segment that is being checked.
	holes [2][2]uint64
}

func (c *checker) full() bool { return len(c.ps) >= maxProblems }

func (c *checker) add(object string, offset uint64, format string, a ...any) {
	if !c.full() {
		c.ps = append(c.ps, Problem{Object: object, Offset: int64(offset), Text: fmt.Sprintf(format, a...)})
	}
}

// zero reports the first byte of b that is not zero. b stands in the file at at.
func (c *checker) zero(object string, at uint64, b []byte) {
	if rest := bytes.TrimLeft(b, "\x00"); len(rest) > 0 {
		c.add(object, at+uint64(len(b)-len(rest)), "reserved byte is %#x, not 0", rest[0])
	}
}

// isZero tells whether every word is 0, as in a slot that was never used. The number of
// words is a multiple of 8. Check spends most of its time here: eight loads have one branch.
func isZero(w []uint64) bool {
	for ; len(w) >= 8; w = w[8:] {
		if atomic.LoadUint64(&w[0])|atomic.LoadUint64(&w[1])|atomic.LoadUint64(&w[2])|atomic.LoadUint64(&w[3])|
			atomic.LoadUint64(&w[4])|atomic.LoadUint64(&w[5])|atomic.LoadUint64(&w[6])|atomic.LoadUint64(&w[7]) != 0 {
			return false
		}
	}
	return true
}

func (v *view) check() []Problem {
	c := &checker{v: v}
	c.header()
	list, err := v.segments()
	if err != nil {
		c.add("file", segmentOffset(v.fixed.history, uint32(len(list))), "%v", err)
	}
	c.catalogue(list)
	for n, s := range list {
		if s.kind == kindRecords {
			for k := range uint32(SegmentLen) {
				c.record(n, place{s, k})
			}
		} else {
			c.blocks(n, s)
		}
	}
	c.history()
	return c.ps
}

// reservedHeader is where the header must be zero in version 1.
var reservedHeader = [][2]uint64{
	{hdrHistory + 4, hdrFile},
	{hdrFile + 8, hdrChecksum},
	{fixedSize, hdrGeneration},
	{hdrTakeovers + 8, hdrHeartbeat},
	{hdrState + 4, hdrCycleBegun},
	{hdrPollPeriod + 8, hdrCatalogueChanges},
	{hdrSegments + 4, hdrRefused},
	{hdrRecordLimit + 4, hdrHistoryIntent},
	{hdrHistoryTail + 8, hdrReplaced},
	{hdrReplaced + 8, hdrDeviceGeneration},
	{hdrDeviceLength + 8, hdrTable},
	{hdrTable + maxSegments*segmentDescriptorSize, headerSize},
}

func (c *checker) header() {
	v, h := c.v, c.v.hdr
	b := bytesOf(h)
	for _, r := range reservedHeader {
		c.zero("header", r[0], b[r[0]:r[1]])
	}
	if n := ringLength(v.fixed.history); n > 0 {
		end := uint64(len(v.history)) * historySize
		c.zero("history", headerSize+end, v.maps[1].b[end:n])
	}
	if n := atomic.LoadUint32(&h.segments); n > maxSegments {
		c.add("header", hdrSegments, "%d segments, where %d are the most", n, maxSegments)
	}
	// Behind the number: one more may have been described before it was declared.
	for n := v.declared() + 1; n < maxSegments; n++ {
		d := &h.table[n]
		if kind, high := atomic.LoadUint32(&d.kind), atomic.LoadUint32(&d.high); (kind != 0 || high != 0) && n > v.declared() {
			c.add("header", hdrTable+uint64(n)*segmentDescriptorSize, "descriptor of segment %d is not 0, there are %d", n, v.declared())
			break
		}
	}

	if atomic.LoadUint64(&h.generation) == 0 {
		c.add("header", hdrGeneration, "generation is 0")
	}
	state := State(atomic.LoadUint32(&h.state))
	if state < Boot || state > Fail {
		c.add("header", hdrState, "state %d is unknown", state)
	}
	if p := atomic.LoadInt64(&h.heartbeatPeriod); p <= 0 {
		c.add("header", hdrHeartbeatPeriod, "heartbeat period is %d ns", p)
	}
	if p := atomic.LoadInt64(&h.pollPeriod); p < 0 {
		c.add("header", hdrPollPeriod, "poll period is %d ns", p)
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
	for n := range v.declared() {
		if high := atomic.LoadUint32(&h.table[n].high); high > SegmentLen {
			c.add("header", hdrTable+uint64(n)*segmentDescriptorSize+segHigh, "%d slots of segment %d used, there are %d", high, n, SegmentLen)
		}
	}
}

// catalogue checks every entry, that names are unique, and the fill levels.
func (c *checker) catalogue(list []*segment) {
	h := c.v.hdr
	changes := atomic.LoadUint64(&h.catalogueChanges)
	names := make(map[string]uint32)
	var used [2]int
	var twice []func()
	var e entryMem
	c.written = make([]uint32, len(list))
	for n, s := range list {
		high := c.v.high(n)
		for k := uint32(0); k < SegmentLen; k++ {
			if c.full() {
				return
			}
			// Behind the mark most slots were never written. A look at one makes the kernel clear a page. Their live bits are
			// checked all the same.
			if k == high || k > high && k%BlockLen == 0 {
				if k = c.behindHole(n, k); k == SegmentLen {
					break
				}
			}
			c.written[n] = k + 1
			i := uint32(n)*SegmentLen + k
			if !c.entry(i, place{s, k}, &e) {
				continue
			}
			used[classOf(s.kind == kindRecords)]++
			name := getString(e.name[:])
			if first, ok := names[name]; ok {
				twice = append(twice, func() {
					c.add(fmt.Sprintf("entry %d", i), c.v.entryOffset(i)+entName, "entry %d has the name %q too", first, name)
				})
			}
			names[name] = i
		}
	}
	if atomic.LoadUint64(&h.catalogueChanges) != changes || len(list) < c.v.declared() {
		return // a writer is at work: the entries were not read at one instant
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

// behindHole returns the first slot of segment n, k or later, that is not in a hole of the file.
func (c *checker) behindHole(n int, k uint32) uint32 {
	begin := c.v.segmentOffset(n)
	at := max(begin, c.v.store.nextWritten(begin+uint64(k)*entrySize)) - begin
	return max(k, uint32(min(at/entrySize, SegmentLen)))
}

// segmentOffset is where segment n lies in the file.
func (v *view) segmentOffset(n int) uint64 { return segmentOffset(v.fixed.history, uint32(n)) }

func (v *view) entryOffset(i uint32) uint64 {
	return v.segmentOffset(int(i/SegmentLen)) + uint64(i%SegmentLen)*entrySize
}
