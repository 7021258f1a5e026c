package poll

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
)

// liveSource is a source with slots that readers can read. Slot n had counted n + 3 packets before its counter got it.
type liveSource struct{ fixedSource }

func (*liveSource) LiveMap() (shm.LiveMap, uint32, error) { return shm.LiveMap{}, 0, nil }
func (*liveSource) LiveBase(id uint32) backend.Pair {
	return backend.Pair{Packets: uint64(id) + 3, Bytes: 60 * (uint64(id) + 3)}
}

// shown keeps the slots that a plan shows.
type shown map[shm.Handle]shm.LiveSlot

func (s shown) SetLive(h shm.Handle, slot shm.LiveSlot) error {
	if s[h] = slot; slot.Map == 0 {
		delete(s, h)
	}
	return nil
}

// The mirror must show the slot and the base of each counter counted in the kernel, through every change: a move to
// hardware and back, another base, an exchange of entries, another file.
func TestPlanShowsLiveSlotsThroughEveryChangeOfSource(t *testing.T) {
	p := segmentsPlan()
	s := &liveSource{fixedSource{name: "xdp", pairs: make([]backend.Pair, 8)}}
	hardware := &fixedSource{name: "rdma", pairs: []backend.Pair{{Packets: 7, Bytes: 700}}}
	w := shown{}
	slot := func(id uint32, packets, bytes uint64) shm.LiveSlot {
		return shm.LiveSlot{Map: 5, Epoch: 2, Slot: id, BasePackets: packets - uint64(id) - 3, BaseBytes: bytes - 60*(uint64(id)+3)}
	}
	check := func(when string, want shown) {
		t.Helper()
		if d := cmp.Diff(want, w); d != "" {
			t.Errorf("%s:\n%s", when, d)
		}
	}
	change := func(h shm.Handle, to backend.Counters, id uint32, base backend.Pair) {
		t.Helper()
		if err := p.ChangeSource(h, func(backend.Pair) (backend.Counters, uint32, backend.Pair, error) { return to, id, base, nil }); err != nil {
			t.Fatal(err)
		}
	}
	p.SetSource(handle(0), s, 1, backend.Pair{})
	check("not asked for", shown{})
	p.ShowLive(w, s, 5, 2)
	check("asked for", shown{handle(0): slot(1, 0, 0)})
	p.SetSource(handle(1), s, 2, backend.Pair{Packets: 10, Bytes: 1000})
	p.SetSource(handle(2), hardware, 0, backend.Pair{})
	p.SetSource(handle(4096), s, 3, backend.Pair{Packets: 20})
	check("added", shown{handle(0): slot(1, 0, 0), handle(1): slot(2, 10, 1000), handle(4096): slot(3, 20, 0)})
	change(handle(1), hardware, 0, backend.Pair{})
	check("to hardware", shown{handle(0): slot(1, 0, 0), handle(4096): slot(3, 20, 0)})
	change(handle(1), s, 2, backend.Pair{Packets: 30})
	change(handle(2), s, 4, backend.Pair{Packets: 40})
	check("to software", shown{handle(0): slot(1, 0, 0), handle(1): slot(2, 30, 0), handle(2): slot(4, 40, 0), handle(4096): slot(3, 20, 0)})
	if err := p.AddMissed(handle(2), func(backend.Pair, int64) backend.Pair { return backend.Pair{Packets: 2} }); err != nil {
		t.Fatal(err)
	}
	p.StopReading(handle(1))
	exchange := func([]shm.Handle, []shm.Entry, []bool) ([]shm.Handle, error) {
		if p.mu.TryLock() {
			t.Error("a cycle may publish between the exchange in the mirror and the move of the values: it would show none")
			p.mu.Unlock()
		}
		return []shm.Handle{handle(9)}, nil
	}
	if _, err := p.Exchange([]shm.Handle{handle(0)}, make([]shm.Entry, 1), []bool{true}, exchange); err != nil {
		t.Fatal(err)
	}
	p.Remove(4096)
	want := shown{handle(9): slot(1, 0, 0), handle(2): slot(4, 42, 0)}
	check("base, hold, move and removal", want)
	clear(w)
	p.ShowLiveAgain()
	check("another file", want)
}
