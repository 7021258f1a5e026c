package flexio

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/flowtally/flowtally/internal/lab/seed"
)

// total is the words that a counter adds to.
type total struct{ completions, errors uint64 }

func (w *total) add(completions, errors uint64) {
	w.completions += completions
	w.errors += errors
}

// Rings of every compression are counted alone, and beside a consumer that reads no compressed
// entries, as ibv_poll_cq does.
func TestRingCounterEqualsWhatTheDeviceWrote(t *testing.T) {
	for _, comp := range []Compression{Uncompressed, Basic, Enhanced} {
		for _, beside := range []bool{false, true} {
			if comp == Enhanced && beside {
				continue // a block is not expanded in the ring
			}
			t.Run(fmt.Sprintf("compression %d, beside %t", comp, beside), func(t *testing.T) { countRing(t, comp, beside) })
		}
	}
}

func countRing(t *testing.T, comp Compression, beside bool) {
	const n = 32
	rng := seed.Rand(t)
	device := &simRing{mem: alignedMem(n * 64), n: n, size: 64, comp: comp, fmt: MiniHash}
	ring, err := NewRing(device.mem, RingOptions{Compression: comp, Format: MiniHash, Expand: beside && comp == Basic})
	if err != nil {
		t.Fatal(err)
	}
	library, err := NewRing(device.mem, RingOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ring.Init()
	var want, got, gotRequests, wantRequests total
	requests := func(e *CQE64) bool { return e.OpOwn.Opcode() == OpReq }
	counter := NewRingCounter(ring, func(completions, errors uint64) { got.add(completions, errors) }, nil)
	index, polled := uint16(0), 0
	for range 20 * n { // many rounds of the ring
		run := randomRun(rng, MiniHash, 1+rng.IntN(n/2), &index)
		for _, c := range run {
			if c.OpOwn.Opcode().IsError() {
				want.errors++
			} else {
				want.completions++
			}
			if requests(&c) {
				wantRequests.completions++
			}
		}
		if comp == Uncompressed || len(run) == 1 {
			for _, c := range run {
				device.one(c)
			}
		} else {
			device.block(run)
		}
		if !beside {
			polled = -1
		}
		if found, err := counter.Count(polled); err != nil || found != len(run) {
			t.Fatalf("%d entries of %d were counted: %v", found, len(run), err)
		}
		if polled = 0; beside {
			for range run {
				var e CQE64
				if ok, err := library.Next(&e); !ok || err != nil {
					t.Fatalf("ibv_poll_cq sees no entry of the %d that were counted: %v", len(run), err)
				}
				if polled++; requests(&e) {
					gotRequests.add(1, 0)
				}
			}
		}
	}
	if got != want {
		t.Errorf("the words are %+v, the device wrote %+v", got, want)
	}
	if beside && gotRequests != wantRequests {
		t.Errorf("ibv_poll_cq took %+v requests, the device completed %+v", gotRequests, wantRequests)
	}
}

// Count returns the number of all entries.
func TestRingCounterAddsOnlyChosenEntries(t *testing.T) {
	device := &simRing{mem: alignedMem(8 * 64), n: 8, size: 64}
	ring, err := NewRing(device.mem, RingOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ring.Init()
	var got total
	counter := NewRingCounter(ring, got.add, func(e *CQE64) bool { return e.QPN() == 7 })
	for _, qpn := range []byte{7, 8, 7} {
		device.one(CQE64{QPN24: [3]byte{2: qpn}, OpOwn: OpOwn(OpRespSend << 4)})
	}
	device.one(CQE64{QPN24: [3]byte{2: 7}, OpOwn: OpOwn(OpReqErr << 4)})
	if n, err := counter.Count(-1); n != 4 || err != nil || got != (total{2, 1}) {
		t.Errorf("%d entries, %v, the words are %+v", n, err, got)
	}
}

// The program polled a whole round without a call of Count.
func TestRingCounterReportsMissedEntries(t *testing.T) {
	device := &simRing{mem: alignedMem(8 * 64), n: 8, size: 64}
	ring, err := NewRing(device.mem, RingOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ring.Init()
	var got total
	counter := NewRingCounter(ring, got.add, nil)
	for range 8 + 3 { // the device writes over three entries
		device.one(CQE64{OpOwn: OpOwn(OpRespSend << 4)})
	}
	if _, err := counter.Count(11); !errors.Is(err, ErrMissed) || counter.Missed() != 11 {
		t.Errorf("11 polled completions, of which 8 can be in the ring: %v, %d missed", err, counter.Missed())
	}
	for i := range uint64(30) { // it goes on behind them
		device.one(CQE64{OpOwn: OpOwn(OpRespSend << 4)})
		if n, err := counter.Count(0); n != 1 || err != nil || got.completions != i+1 || counter.Missed() != 11 {
			t.Fatalf("%d counted: %v, the words are %+v, %d missed", n, err, got, counter.Missed())
		}
		if _, err := counter.Count(1); err != nil {
			t.Fatal(err)
		}
	}
}

// Samples taken before the counter was made do not count.
func TestCollapsedCounterSkipsEarlierSamples(t *testing.T) {
	entry := alignedMem(64)
	queue, err := NewCollapsed(entry, CollapsedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	queue.Init()
	complete(entry, 99, CQE64{})
	posted := func() uint64 { return 200 }
	queue.SampleUpTo(posted)
	var got total
	counter := NewCollapsedCounter(queue, got.add)
	complete(entry, 100, CQE64{})
	if counter.CountUpTo(posted); got != (total{1, 0}) {
		t.Errorf("the words are %+v after 1 completion", got)
	}
}

// The index wraps between two samples.
func TestCollapsedCounterAddsErrorsApart(t *testing.T) {
	entry := alignedMem(64)
	queue, err := NewCollapsed(entry, CollapsedOptions{MaxRate: 1_000_000})
	if err != nil {
		t.Fatal(err)
	}
	queue.Init()
	var got total
	var now time.Duration
	counter := NewCollapsedCounter(queue, got.add)
	counter.Count(clockAt(&now))
	if got != (total{}) {
		t.Fatalf("before the first completion the words are %+v", got)
	}
	all, failed := uint64(0), uint64(0)
	for i := range 100 {
		now += time.Millisecond
		all += uint64(1 + i*700%60_000)
		e := CQE64{OpOwn: OpOwn(OpReq << 4)}
		if i%9 == 8 {
			e.OpOwn = OpOwn(OpReqErr << 4)
			failed++
		}
		complete(entry, all-1, e)
		if i%2 == 0 {
			counter.Count(clockAt(&now))
		} else {
			counter.CountUpTo(func() uint64 { return all })
		}
		if want := (total{all - failed, failed}); got != want {
			t.Fatalf("after %d completions the words are %+v, want %+v", all, got, want)
		}
	}
}
