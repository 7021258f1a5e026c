package flexio

import (
	"encoding/binary"
	"testing"
	"time"
)

// complete writes the device's entry for the completion with this index.
func complete(entry []byte, index uint64, c CQE64) {
	c.WQECounter = uint16(index)
	copy(entry, entryBytes(c))
}

// clockAt is a clock that stands.
func clockAt(d *time.Duration) func() time.Duration { return func() time.Duration { return *d } }

func TestCollapsedExtendsTheIndexTo64Bits(t *testing.T) {
	entry := alignedMem(64)
	c, err := NewCollapsed(entry, CollapsedOptions{MaxRate: 1_000_000})
	if err != nil {
		t.Fatal(err)
	}
	c.Init()
	if c.Horizon() != 65535*time.Microsecond {
		t.Errorf("horizon %v", c.Horizon())
	}
	fast, err := NewCollapsed(entry, CollapsedOptions{})
	if err != nil || fast.Horizon() != 327675*time.Nanosecond { // 65535 at 200 million in a second
		t.Errorf("horizon at the default rate %v, %v", fast.Horizon(), err)
	}
	var now time.Duration
	clock := clockAt(&now)
	if got := c.Sample(clock); got != (Count{}) {
		t.Errorf("before the first completion: %+v", got)
	}
	// The steps of ROCm/mori 653 and others: around the sign bit and the wrap.
	total := uint64(0)
	for _, step := range []uint64{1, 0, 0x7ffe, 1, 1, 0x7fff, 0xffff, 0xffff, 2, 0xfffe, 1} {
		now += 60 * time.Millisecond
		total += step
		if total > 0 {
			complete(entry, total-1, CQE64{OpOwn: 0})
		}
		if got := c.Sample(clock); got.Completed != total || got.Ambiguous {
			t.Fatalf("after %d completions: %+v", total, got)
		}
	}
}

func TestCollapsedIsAmbiguousAfterALongGap(t *testing.T) {
	entry := alignedMem(64)
	c, err := NewCollapsed(entry, CollapsedOptions{MaxRate: 1_000_000})
	if err != nil {
		t.Fatal(err)
	}
	c.Init()
	var now time.Duration
	clock := clockAt(&now)
	c.Sample(clock)
	complete(entry, 65536+9-1, CQE64{}) // 65,545 completions look like nine
	now += 66 * time.Millisecond
	if got := c.Sample(clock); !got.Ambiguous || got.Completed != 9 {
		t.Errorf("got %+v, want nine, ambiguous", got)
	}
	now += time.Millisecond
	if got := c.Sample(clock); !got.Ambiguous {
		t.Errorf("%+v is not ambiguous any more", got)
	}
	// A thread that lost its CPU between the clock and the entry is caught too.
	c2, err := NewCollapsed(entry, CollapsedOptions{MaxRate: 1_000_000})
	if err != nil {
		t.Fatal(err)
	}
	c2.Init()
	calls := 0
	stalls := func() time.Duration {
		if calls++; calls == 3 { // after the second read
			return 70 * time.Millisecond
		}
		return 0
	}
	c2.Sample(stalls)
	if got := c2.Sample(stalls); !got.Ambiguous {
		t.Errorf("%+v after a read that took 70 ms", got)
	}
}

func TestCollapsedIsExactWithTheProducerIndex(t *testing.T) {
	entry := alignedMem(64)
	c, err := NewCollapsed(entry, CollapsedOptions{Depth: 65535})
	if err != nil {
		t.Fatal(err)
	}
	c.Init()
	done, posted := uint64(0), uint64(0)
	up := func() uint64 { return posted }
	for _, tt := range []struct{ done, posted uint64 }{
		{0, 0}, {0, 65535}, {65535, 65535}, {65536, 131071}, {1_000_000, 1_000_000}, {1 << 40, 1<<40 + 65535}, {1 << 41, 1 << 41},
	} {
		done, posted = tt.done, tt.posted
		if done > 0 {
			complete(entry, done-1, CQE64{})
		}
		if got := c.SampleUpTo(up); got.Completed != done || got.Ambiguous {
			t.Fatalf("%d of %d: %+v", done, posted, got)
		}
	}
	posted = 5 // of another queue
	if got := c.SampleUpTo(up); !got.Ambiguous || got.Completed != 1<<41 {
		t.Errorf("an index that went back: %+v", got)
	}
}

// The index goes back while the entry is read, so it says nothing about this entry.
func TestCollapsedIsAmbiguousIfTheProducerIndexGoesBack(t *testing.T) {
	entry := alignedMem(64)
	c, err := NewCollapsed(entry, CollapsedOptions{Depth: 64})
	if err != nil {
		t.Fatal(err)
	}
	c.Init()
	complete(entry, 300-1, CQE64{})
	up := uint64(1500)
	if got := c.SampleUpTo(func() uint64 { up -= 500; return up }); !got.Ambiguous || got.Completed != 0 {
		t.Errorf("300 of 500, with 1000 before and a queue of 64: %+v, want that it is ambiguous", got)
	}
}

func TestCollapsedCountsErrorsAndKeepsTheLast(t *testing.T) {
	entry := alignedMem(64)
	c, err := NewCollapsed(entry, CollapsedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.Init()
	var now time.Duration
	clock := clockAt(&now)
	good := CQE64{OpOwn: 0, VendorErrSynd: 0x99, Syndrome: 0x77} // a timestamp
	bad := CQE64{OpOwn: 0xd0, HWErrSyndrome: 3, VendorErrSynd: 0x88, Syndrome: SyndromeRNRRetries}
	steps := []struct {
		cqe    CQE64
		errors uint64
	}{{good, 0}, {bad, 1}, {good, 1}, {bad, 2}, {bad, 3}}
	for i, s := range steps {
		complete(entry, uint64(i), s.cqe)
		got := c.Sample(clock)
		if got.Completed != uint64(i+1) || got.Errors != s.errors {
			t.Errorf("after completion %d: %+v, want %d errors", i, got, s.errors)
		}
		if again := c.Sample(clock); again != got {
			t.Errorf("looking again: %+v, was %+v", again, got)
		}
	}
	want := CompletionError{Opcode: OpReqErr, Syndrome: SyndromeRNRRetries, Vendor: 0x88, HW: 3}
	if got := c.Sample(clock).Last; got == nil || *got != want {
		t.Errorf("last error %+v, want %+v", got, want)
	}
}

// Such an index must belong to another queue, so the count must stay unchanged.
func TestCollapsedIsAmbiguousIfTheProducerIndexIsImpossible(t *testing.T) {
	for _, tt := range []struct {
		name         string
		depth        uint32
		done, posted uint64
		ambiguous    bool
	}{
		{"as many outstanding as fit", 100, 50, 150, false},
		{"more outstanding than fit", 100, 50, 151, true},
		{"the default depth", 0, 1, 1 + 32768, false},
		{"more than the default depth", 0, 1, 2 + 32768, true},
		{"completed what nobody posted", 65535, 10, 5, true},
	} {
		entry := alignedMem(64)
		c, err := NewCollapsed(entry, CollapsedOptions{Depth: tt.depth})
		if err != nil {
			t.Fatal(err)
		}
		c.Init()
		complete(entry, tt.done-1, CQE64{})
		want := Count{Completed: tt.done}
		if tt.ambiguous {
			want = Count{Ambiguous: true}
		}
		if got := c.SampleUpTo(func() uint64 { return tt.posted }); got != want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, want)
		}
	}
	// The entry is read before the index: a completion in between was posted before.
	entry := alignedMem(64)
	c, err := NewCollapsed(entry, CollapsedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.Init()
	complete(entry, 49, CQE64{})
	asked := 0
	got := c.SampleUpTo(func() uint64 {
		if asked++; asked == 2 {
			complete(entry, 119, CQE64{}) // posted and completed right behind this call
		}
		return 100
	})
	if got != (Count{Completed: 50}) {
		t.Errorf("a device that goes on meanwhile: %+v, want 50", got)
	}
	// A reader that is held up behind the entry, while the device goes once round and further.
	asked = 0
	got = c.SampleUpTo(func() uint64 {
		if asked++; asked < 2 {
			return 120
		}
		complete(entry, 69_999, CQE64{})
		return 70_100
	})
	if got != (Count{Completed: 70_000}) || asked != 3 {
		t.Errorf("held up: %+v when asked %d times, want 70000 at the third", got, asked)
	}
	up := uint64(70_100)
	if got = c.SampleUpTo(func() uint64 { up += 40_000; return up }); got != (Count{Completed: 70_000}) {
		t.Errorf("held up each time: %+v, want the count before", got)
	}
}

func TestReadStableReturnsSyndromesOnlyIfTwoLooksAgree(t *testing.T) {
	const bad, good = 0x0007_00d0, 0x0008_0020 // index 7 failed, index 8 did not
	answers := func(words ...uint32) func() uint32 {
		return func() uint32 {
			w := words[0]
			if len(words) > 1 {
				words = words[1:]
			}
			return w
		}
	}
	whole := &CompletionError{Opcode: OpReqErr, Syndrome: SyndromeRNRRetries, Vendor: 0x88, HW: 3}
	for _, tt := range []struct {
		name  string
		last  []uint32
		index uint16
		want  *CompletionError
	}{
		{"it stands", []uint32{bad}, 7, whole},
		{"it is overwritten by a good one", []uint32{bad, good, good}, 8, nil},
		{"it is overwritten by a bad one", []uint32{bad, bad + 1<<16, bad + 1<<16}, 8, whole},
		{"it never stands", []uint32{bad, 0, bad, 0, bad, 0, bad, 0}, 7, &CompletionError{Opcode: OpReqErr}},
	} {
		index, failed := readStable(answers(tt.last...), answers(0x03_00_88_16))
		if index != tt.index || (failed == nil) != (tt.want == nil) || failed != nil && *failed != *tt.want {
			t.Errorf("%s: index %d, %+v, want %d, %+v", tt.name, index, failed, tt.index, tt.want)
		}
	}
}

func TestCollapsedAllocatesNothing(t *testing.T) {
	entry := alignedMem(64)
	c, err := NewCollapsed(entry, CollapsedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.Init()
	var now time.Duration
	clock, posted, done := clockAt(&now), uint64(0), uint64(0)
	up := func() uint64 { return posted }
	if n := testing.AllocsPerRun(1000, func() {
		posted++
		entry[60], entry[61] = byte(done>>8), byte(done)
		done++
		c.Sample(clock)
		c.SampleUpTo(up)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if got := c.SampleUpTo(up); got != (Count{Completed: posted}) {
		t.Errorf("counted %+v of %d", got, posted)
	}
}

func TestNewCollapsedRefusesMemoryThatIsNoEntry(t *testing.T) {
	mem := alignedMem(128)
	for name, f := range map[string]func() (*Collapsed, error){
		"short":     func() (*Collapsed, error) { return NewCollapsed(mem[:63], CollapsedOptions{}) },
		"unaligned": func() (*Collapsed, error) { return NewCollapsed(mem[4:68], CollapsedOptions{}) },
		"too deep":  func() (*Collapsed, error) { return NewCollapsed(mem[:64], CollapsedOptions{Depth: 65536}) },
	} {
		if _, err := f(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// word is the last word of the entry of this completion.
func word(index uint64, failed bool) uint32 {
	var b [4]byte
	binary.BigEndian.PutUint16(b[:], uint16(index))
	if failed {
		b[3] = byte(OpReqErr) << 4
	}
	return binary.NativeEndian.Uint32(b[:])
}
