package catalogue

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/poll"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/shm/shmtest"
)

// startFlow is a flow of a start. The match is the text of its entry, and the cookie of its slot.
type startFlow struct {
	name  string
	match byte
}

func (f startFlow) String() string { return fmt.Sprintf("%s=%c", f.name, f.match) }

// before is the total of a match in the mirror of the first process. Its base is not zero: a slot alone does not have
// the whole total.
func before(match byte) backend.Pair {
	return backend.Pair{Packets: 100 * uint64(match-'A'+1), Bytes: 6400 * uint64(match-'A'+1)}
}

// base is the part of the total that is not in the slot.
func base(match byte) backend.Pair {
	return backend.Pair{Packets: before(match).Packets / 2, Bytes: before(match).Bytes / 2}
}

var errStart = errors.New("the start fails")

// start is a start of a process over a mirror.
type start struct {
	flows  []startFlow
	limits [2]int
	pinned bool // the slots of before, and so their cookies, are there
	end    int  // the number of the flow after which the process fails; -1: it does not
	failed bool // the entry of that flow cannot be made
}

// over starts the process. check is called at its end, which is the state that a kill leaves.
func (s start) over(t *testing.T, path string, check func(*shm.Writer)) error {
	t.Helper()
	w, err := shm.Create(shm.Options{Path: path, Counters: s.limits[0], LatencyCounters: s.limits[1], History: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer func() { check(w) }()
	m := New(Options{Path: path, Writer: w, Plan: poll.NewPlan(0), Limits: s.limits})
	m.Inherit()
	for i, f := range s.flows {
		e := shm.Entry{Name: f.name, Kind: "flow", Text: string(f.match), Latency: f.match == 'D'}
		cookie, fails := uint64(f.match), i == s.end && s.failed
		if !s.pinned {
			cookie |= w.Generation() << 8
		}
		if fails {
			e.Unit = strings.Repeat("x", 100)
		}
		_, _, err := m.Entry(e, []uint64{cookie}, func(old *Inherited) (shm.Continuity, error) {
			return goOn(old, cookie)
		})
		showsNoOther(t, w)
		switch {
		case err != nil && !fails:
			return fmt.Errorf("%v: %w", f, err)
		case i == s.end:
			return errStart
		}
	}
	return m.RemoveInherited(nil)
}

// showsNoOther checks that each entry shows the total of its match, or none.
func showsNoOther(t *testing.T, w *shm.Writer) {
	t.Helper()
	for _, e := range w.Entries() {
		v, err := w.Last(e.Handle)
		if got := (backend.Pair{Packets: v.Packets, Bytes: v.Bytes}); err != nil || v.SampledAt != 0 && got != before(e.Text[0]) {
			t.Errorf("%s of match %s shows %+v, %v", e.Name, e.Text, got, err)
		}
	}
}

// firstMirror makes the mirror that a process with these flows leaves.
func firstMirror(t *testing.T, flows []startFlow) []byte {
	t.Helper()
	path := shmtest.Path(t)
	w, err := shm.Create(shm.Options{Path: path, History: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var block shm.Block
	for _, f := range flows {
		b := base(f.match)
		h, err := w.Add(shm.Entry{Name: f.name, Kind: "flow", Text: string(f.match), Continuity: shm.Continuity{Cookie: uint64(f.match), BasePackets: b.Packets, BaseBytes: b.Bytes}})
		if err != nil {
			t.Fatal(err)
		}
		p := before(f.match)
		block[h.Index] = shm.Value{Packets: p.Packets, Bytes: p.Bytes, SampledAt: 1}
	}
	w.BeginCycle()
	w.PublishBlock(0, &block)
	w.EndCycle(1)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// permutations calls try with each order of the flows.
func permutations(flows []startFlow, n int, try func([]startFlow)) {
	if n == len(flows) {
		try(slices.Clone(flows))
		return
	}
	for i := n; i < len(flows); i++ {
		flows[n], flows[i] = flows[i], flows[n]
		permutations(flows, n+1, try)
		flows[n], flows[i] = flows[i], flows[n]
	}
}

// A start with changed names ends after each of its entries, or when an entry cannot be made although its slot is free. The next
// start, with the file of that moment, must find the total of each match counted before. The mirror is full from the beginning.
func TestAStartThatEndsEarlyLosesNoTotal(t *testing.T) {
	was := []startFlow{{"a", 'A'}, {"b", 'B'}}
	mirror := firstMirror(t, was)
	for name, now := range map[string][]startFlow{
		"one moves, and its name is given away": {{"b", 'B'}, {"c", 'A'}, {"a", 'C'}},
		"one takes the name of one that goes":   {{"b", 'A'}, {"a", 'C'}},
		"two swap":                              {{"a", 'B'}, {"b", 'A'}},
		"a ring":                                {{"a", 'C'}, {"b", 'A'}, {"c", 'B'}},
		"other matches":                         {{"a", 'C'}, {"b", 'D'}},
	} {
		t.Run(name, func(t *testing.T) {
			permutations(slices.Clone(now), 0, func(now []startFlow) {
				c := startCase{was: was, mirror: mirror}
				c.first.flows = now
				for c.first.end = range now {
					for _, c.first.failed = range []bool{false, true} {
						c.try(t, now, true)
						c.try(t, was, true)
						c.try(t, was, false) // a match under its name is known by that
					}
				}
			})
		})
	}
}

// startCase is one case of TestAStartThatEndsEarlyLosesNoTotal.
type startCase struct {
	was    []startFlow
	mirror []byte // of these flows
	first  start
}

// try starts as first says, which ends early, then with the flows of then.
func (c startCase) try(t *testing.T, then []startFlow, pinned bool) {
	t.Helper()
	first := c.first
	first.pinned, first.limits = pinned, [2]int{max(len(c.was), len(first.flows)), 1}
	next := start{flows: then, limits: first.limits, pinned: pinned, end: -1}
	defer func() {
		if t.Failed() {
			t.Fatalf("%v, then %+v, then %+v", c.was, first, next)
		}
	}()
	path := shmtest.Path(t)
	if err := os.WriteFile(path, c.mirror, 0o600); err != nil {
		t.Fatal(err)
	}
	var killed []byte
	err := first.over(t, path, func(*shm.Writer) { killed, _ = os.ReadFile(path) })
	if !errors.Is(err, errStart) {
		t.Errorf("the first start: %v", err)
	}
	if err := os.WriteFile(path+".killed", killed, 0o600); err != nil {
		t.Fatal(err)
	}
	err = next.over(t, path+".killed", func(w *shm.Writer) {
		entries := w.Entries()
		if len(entries) != len(then) {
			t.Errorf("%d entries, want %d", len(entries), len(then))
		}
		for _, e := range entries {
			c.check(t, w, e, then, pinned)
		}
	})
	if err != nil {
		t.Errorf("the next start: %v", err)
	}
}

// check checks an entry after the start that succeeds.
func (c startCase) check(t *testing.T, w *shm.Writer, e shm.Entry, then []startFlow, pinned bool) {
	t.Helper()
	if !slices.Contains(then, startFlow{e.Name, e.Text[0]}) {
		t.Errorf("%s of match %s is in the mirror", e.Name, e.Text)
	}
	if !slices.ContainsFunc(c.was, func(f startFlow) bool { return f.match == e.Text[0] }) {
		return // it begins at 0
	}
	total, past := before(e.Text[0]), e.Continuity
	want := base(e.Text[0])
	if !pinned {
		want = total // slots that begin at 0 count the rest
	}
	if got := (backend.Pair{Packets: past.BasePackets, Bytes: past.BaseBytes}); got != want || (past.Discontinuities == 0) != pinned {
		t.Errorf("%s of match %s goes on from %+v with %d discontinuities, want %+v", e.Name, e.Text, got, past.Discontinuities, want)
	}
	if v, err := w.Last(e.Handle); err != nil || (backend.Pair{Packets: v.Packets, Bytes: v.Bytes}) != total {
		t.Errorf("%s of match %s shows %+v, %v, want %+v", e.Name, e.Text, v, err, total)
	}
}

// Entries set aside do not count against the limit of the mirror: a start can make exactly as many counters as without them. A
// mirror with more counters than its limit keeps them.
func TestEntriesSetAsideTakeNoRoom(t *testing.T) {
	was := []startFlow{{"a", 'A'}, {"b", 'B'}}
	mirror := firstMirror(t, was)
	begin := func(limit int, flows ...startFlow) (n int, err error) {
		path := shmtest.Path(t)
		if err := os.WriteFile(path, mirror, 0o600); err != nil {
			t.Fatal(err)
		}
		err = start{flows: flows, limits: [2]int{limit}, pinned: true, end: -1}.over(t, path, func(w *shm.Writer) { n = len(w.Entries()) })
		return n, err
	}
	permutations([]startFlow{{"a", 'C'}, {"b", 'A'}, {"c", 'E'}}, 0, func(flows []startFlow) {
		if _, err := begin(2, flows...); !errors.Is(err, dataplane.ErrFull) {
			t.Errorf("%v: %v, want %v", flows, err, dataplane.ErrFull)
		}
	})
	if n, err := begin(1, startFlow{"a", 'C'}, startFlow{"b", 'E'}); err != nil || n != 2 {
		t.Errorf("a limit that is lower now: %d entries, %v", n, err)
	}
}

// Room predicts, before the first entry of a start is made, exactly which of them will find room.
func TestRoomIsWhatEntriesFindLater(t *testing.T) {
	mirror := firstMirror(t, []startFlow{{"a", 'A'}, {"b", 'B'}})
	for limit := 1; limit <= 4; limit++ {
		permutations([]startFlow{{"a", 'C'}, {"b", 'A'}, {"c", 'B'}, {"d", 'D'}}, 0, func(flows []startFlow) {
			path := shmtest.Path(t)
			if err := os.WriteFile(path, mirror, 0o600); err != nil {
				t.Fatal(err)
			}
			limits := [2]int{limit, 1 - limit%2*2}
			w, err := shm.Create(shm.Options{Path: path, Counters: limits[0], LatencyCounters: limits[1], History: -1})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			m := New(Options{Path: path, Writer: w, Plan: poll.NewPlan(0), Limits: limits})
			m.Inherit()
			entry := func(f startFlow) shm.Entry {
				return shm.Entry{Name: f.name, Kind: "flow", Text: string(f.match), Latency: f.match == 'D'}
			}
			room, refused := m.Room(), make(map[startFlow]error)
			for _, f := range flows {
				if err := room.Take(entry(f), uint64(f.match)); err != nil {
					refused[f] = err
				}
			}
			for _, f := range flows {
				cookie := uint64(f.match)
				_, _, err := m.Entry(entry(f), []uint64{cookie}, func(old *Inherited) (shm.Continuity, error) {
					return goOn(old, cookie)
				})
				if errors.Is(err, dataplane.ErrFull) != errors.Is(refused[f], dataplane.ErrFull) {
					t.Errorf("limits %d, %v: %v finds %v, computed was %v", limits, flows, f, err, refused[f])
				}
			}
		})
	}
}

// A start takes an entry over and gives it back. Then it is killed, or takes the entry over again. The total must continue, with
// a discontinuity because the first slot is gone. A new entry that is given back is removed.
func TestAnEntryThatIsGivenBackKeepsItsTotal(t *testing.T) {
	for name, flows := range map[string][]startFlow{
		"its name stays": {{"a", 'A'}}, "it is renamed": {{"b", 'A'}}, "its name is given away": {{"a", 'C'}, {"b", 'A'}},
	} {
		t.Run(name, func(t *testing.T) {
			path := shmtest.Path(t)
			if err := os.WriteFile(path, firstMirror(t, []startFlow{{"a", 'A'}}), 0o600); err != nil {
				t.Fatal(err)
			}
			start := func(cookie uint64, giveBack bool) {
				w, err := shm.Create(shm.Options{Path: path, History: -1})
				if err != nil {
					t.Fatal(err)
				}
				defer w.Close()
				m := New(Options{Path: path, Writer: w, Plan: poll.NewPlan(0)})
				m.Inherit()
				for range 2 {
					var handles []shm.Handle
					for _, f := range flows {
						cookie := cookie + uint64(f.match)
						h, past, err := m.Entry(shm.Entry{Name: f.name, Kind: "flow", Text: string(f.match)}, []uint64{cookie}, func(old *Inherited) (shm.Continuity, error) {
							return goOn(old, cookie)
						})
						if err != nil {
							t.Fatal(err)
						}
						handles = append(handles, h)
						if want := before('A'); f.match == 'A' && cookie != 'A' && (past.BasePackets != want.Packets || past.BaseBytes != want.Bytes || past.Discontinuities == 0) {
							t.Errorf("%v goes on with %+v", f, past)
						}
						showsNoOther(t, w)
					}
					cookie += 1 << 32
					if !giveBack {
						break
					}
					for _, h := range handles {
						if err := m.GiveBack(h); err != nil {
							t.Fatal(err)
						}
					}
					if all := w.Entries(); len(all) != 1 || all[0].Text != "A" {
						t.Errorf("entries after all were given back: %v", all)
					}
				}
				if giveBack {
					return // killed
				}
				if err := m.RemoveInherited(nil); err != nil || len(w.Entries()) != len(flows) {
					t.Errorf("%v, entries %v", err, w.Entries())
				}
			}
			start(0, true)
			start(1<<40, false)
		})
	}
}

// goOn is how the engine has a total go on in a slot: from its base where the slot has counted it, else from the last total.
func goOn(old *Inherited, cookie uint64) (shm.Continuity, error) {
	switch {
	case old == nil:
		return shm.Continuity{Cookie: cookie}, nil
	case old.Continuity.Cookie == cookie:
		return old.Continuity, nil
	}
	total, err := old.Total()
	return shm.Continuity{
		Cookie: cookie, BasePackets: total.Packets, BaseBytes: total.Bytes, Discontinuities: old.Continuity.Discontinuities + 1,
	}, err
}
