package queuepair

import (
	"slices"
	"syscall"
	"testing"

	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/ibv/flexio"
)

// written is an entry that the device writes: the number of the request, and the syndrome of its failure.
type written struct {
	number   int
	syndrome flexio.Syndrome // 0: success
}

// Each step posts requests and has the device write entries, of which only the last stays. The statuses are those of all
// requests, in order.
func TestCollapsedEntryTellsResultsUntilAnErrorIsOverwritten(t *testing.T) {
	const ok, flush, unknown = ibv.WCSuccess, ibv.WCWRFlushErr, statusUnknown
	repeat := func(s ibv.WCStatus, n int) []ibv.WCStatus { return slices.Repeat([]ibv.WCStatus{s}, n) }
	type step struct {
		post  int
		write written
	}
	for _, c := range []struct {
		name  string
		steps []step
		want  []ibv.WCStatus
	}{
		{"all succeed", []step{{5, written{4, 0}}, {64, written{68, 0}}}, repeat(ok, 69)},
		{"the cause is seen: everything before it succeeded", []step{{5, written{3, flexio.SyndromeRemoteAccess}}},
			append(repeat(ok, 3), ibv.WCRemAccessErr)},
		{"then the others are flushed", []step{{5, written{3, flexio.SyndromeRemoteAccess}}, {2, written{6, flexio.SyndromeWRFlush}}},
			append(repeat(ok, 3), ibv.WCRemAccessErr, flush, flush, flush)},
		{"a flush overwrote the cause", []step{{2, written{1, 0}}, {5, written{6, flexio.SyndromeWRFlush}}},
			slices.Concat(repeat(ok, 2), repeat(unknown, 4), repeat(flush, 1))},
		{"one request is flushed", []step{{2, written{1, 0}}, {1, written{2, flexio.SyndromeWRFlush}}},
			append(repeat(ok, 2), flush)},
		{"a syndrome that means nothing to us", []step{{3, written{2, 0x77}}}, append(repeat(unknown, 2), ibv.WCGeneralErr)},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newEntryOnly(t)
			posted := uint64(0)
			p.posted = func() uint64 { return posted }
			for _, s := range c.steps {
				posted += uint64(s.post)
				p.write(s.write)
				if err := p.sample(); err != nil {
					t.Fatal(err)
				}
			}
			var got []ibv.WCStatus
			for n := range p.ended {
				got = append(got, p.status(n))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got  %d\nwant %d", got, c.want)
			}
		})
	}
}

// 100,000 requests pass the index of 16 bits; one that was not posted is an error of the device.
func TestCollapsedEntryCountsBeyondItsIndex(t *testing.T) {
	p := newEntryOnly(t)
	posted := uint64(0)
	p.posted = func() uint64 { return posted }
	for posted < 100_000 {
		posted += 50
		p.write(written{number: int(posted - 1)})
		if err := p.sample(); err != nil || p.ended != posted {
			t.Fatalf("%d of %d: %v", p.ended, posted, err)
		}
	}
	if allocs := testing.AllocsPerRun(100, func() { _ = p.sample() }); allocs != 0 {
		t.Errorf("a sample allocates %v times", allocs)
	}
	p.write(written{number: int(posted) + 1000})
	if err := p.sample(); err == nil {
		t.Error("a request that was not posted has ended")
	}
}

// newEntryOnly returns the counting half of a collapsed pair.
func newEntryOnly(t *testing.T) *collapsedPair {
	t.Helper()
	mem, err := syscall.Mmap(-1, 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(mem) })
	p := &collapsedPair{depth: 128, sendMem: mem[:entryBytes]}
	if err := p.restart(); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *collapsedPair) write(w written) {
	e := p.sendMem
	e[55] = uint8(w.syndrome)
	e[60], e[61] = uint8(w.number>>8), uint8(w.number)
	e[63] = uint8(flexio.OpReq) << 4
	if w.syndrome != 0 {
		e[63] = uint8(flexio.OpReqErr) << 4
	}
}
