package selection

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/shm"
)

// The model has maps by the text of a group, and numbers without a limit.
func TestSelectionsAndSumsMatchTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries, values := drawCounters(t)
		keys := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"team", "site", "none"}), 1, 2, rapid.ID).Draw(t, "keys")
		wanted := rapid.SampledFrom([]string{"", "ops", "net"}).Draw(t, "team")
		o := Options{SumBy: keys}
		if wanted != "" {
			o.Label = []string{"team=" + wanted}
		}
		s, err := New(nil, o)
		if err != nil {
			t.Fatal(err)
		}
		type model struct {
			members, absent, stale int
			packets, bytes         *big.Int
			bases                  map[string]bool
			oldest                 int64
		}
		want := make(map[string]*model)
		var of []shm.Entry
		var v []shm.Value
		for i, e := range entries {
			team, has := e.Labels["team"]
			if is := wanted == "" || has && team == wanted; is != s.Has(e) {
				t.Fatalf("%+v is selected: %v, want %v", e, !is, is)
			} else if !is {
				continue
			}
			of, v = append(of, e), append(v, values[i])
			name := fmt.Sprintf("%q %q", e.Kind, e.Unit)
			for _, k := range keys {
				value, has := e.Labels[k]
				name += fmt.Sprintf(" %q %q %v", k, value, has)
			}
			m := want[name]
			if m == nil {
				m = &model{packets: new(big.Int), bytes: new(big.Int), bases: map[string]bool{}}
				want[name] = m
			}
			m.members++
			if e.Stale {
				m.stale++
			}
			if values[i].SampledAt == 0 {
				m.absent++
				continue
			}
			m.packets.Add(m.packets, new(big.Int).SetUint64(values[i].Packets))
			m.bytes.Add(m.bytes, new(big.Int).SetUint64(values[i].Bytes))
			m.bases[e.ByteBasis] = true
			if m.oldest == 0 || values[i].SampledAt < m.oldest {
				m.oldest = values[i].SampledAt
			}
		}
		got := s.SumUp(of, v)
		if len(got) != len(want) {
			t.Fatalf("%d sums, want %d", len(got), len(want))
		}
		if !slices.IsSortedFunc(got, func(a, b Sum) int { return a.Group.Compare(b.Group) }) {
			t.Fatal("the sums are in no order")
		}
		for _, g := range got {
			name := fmt.Sprintf("%q %q", g.Kind, g.Unit)
			for _, l := range g.Labels() {
				name += fmt.Sprintf(" %q %q %v", l.Key, l.Value, l.Has)
			}
			m := want[name]
			if m == nil {
				t.Fatalf("a sum of %s, which has no counter", name)
			}
			if g.Members != m.members || g.Absent != m.absent || g.Stale != m.stale || g.Oldest != m.oldest {
				t.Fatalf("%s: %+v, want %+v", name, g, m)
			}
			if g.HasValue() != (m.oldest != 0 && m.packets.IsUint64() && m.bytes.IsUint64()) || g.HasValue() && g.Packets != m.packets.Uint64() {
				t.Fatalf("%s: %d packets (%v), want %v", name, g.Packets, g.HasValue(), m.packets)
			}
			if g.HasBytes() && (len(m.bases) != 1 || g.Bytes != m.bytes.Uint64()) || g.Exact() && g.Absent > 0 {
				t.Fatalf("%s: %+v has bytes of %v", name, g, m.bases)
			}
		}
	})
}

func drawCounters(t *rapid.T) (entries []shm.Entry, values []shm.Value) {
	number := rapid.OneOf(rapid.Uint64Range(0, 1000), rapid.Uint64Range(1<<63, 1<<64-1))
	for i := range rapid.IntRange(0, 12).Draw(t, "counters") {
		e := shm.Entry{
			Name:      fmt.Sprint("c", i),
			Kind:      rapid.SampledFrom([]string{"flow", shm.KindCompletion}).Draw(t, "kind"),
			Unit:      rapid.SampledFrom([]string{"packets", "completions"}).Draw(t, "unit"),
			ByteBasis: rapid.SampledFrom([]string{"l2", "unknown"}).Draw(t, "basis"),
			Stale:     rapid.Bool().Draw(t, "stale"), Valid: rapid.Bool().Draw(t, "valid"),
		}
		for _, k := range []string{"team", "site"} {
			if rapid.Bool().Draw(t, k+" is set") {
				if e.Labels == nil {
					e.Labels = map[string]string{}
				}
				e.Labels[k] = rapid.SampledFrom([]string{"ops", "net", "", "=", "a,b", "\x1b[2J", strings.Repeat("é", 120)}).Draw(t, k)
			}
		}
		v := shm.Value{Packets: number.Draw(t, "packets"), Bytes: number.Draw(t, "bytes"), SampledAt: rapid.Int64Range(0, 3).Draw(t, "sampled at")}
		entries, values = append(entries, e), append(values, v)
	}
	return entries, values
}

func TestSumIsNoMoreExactThanItsLeastExactCounter(t *testing.T) {
	s, err := New(nil, Options{SumBy: []string{"team", "site"}})
	if err != nil {
		t.Fatal(err)
	}
	entry := func(e shm.Entry) shm.Entry {
		e.Kind, e.Labels = "flow", map[string]string{"team": "ops"}
		return e
	}
	good := entry(shm.Entry{Valid: true, ByteBasis: "l2"})
	value := shm.Value{Packets: 10, Bytes: 640, SampledAt: 5}
	gap := good
	gap.Continuity.Discontinuities = 3
	for name, c := range map[string]struct {
		entry                shm.Entry
		value                shm.Value
		has, hasBytes, exact bool
		packets              uint64
	}{
		"alike":         {good, value, true, true, true, 20},
		"never sampled": {good, shm.Value{}, true, true, false, 10},
		"invalid":       {entry(shm.Entry{ByteBasis: "l2"}), value, true, true, false, 20},
		"other basis":   {entry(shm.Entry{Valid: true, ByteBasis: "unknown"}), value, true, false, true, 20},
		"gap":           {gap, value, true, true, true, 20},
		"too large":     {good, shm.Value{Packets: 1<<64 - 1, SampledAt: 1}, false, false, false, 9},
	} {
		sums := s.SumUp([]shm.Entry{good, c.entry}, []shm.Value{value, c.value})
		if len(sums) != 1 {
			t.Fatalf("%s: %d sums", name, len(sums))
		}
		sum := sums[0]
		if sum.Members != 2 || sum.String() != "team=ops,!site" || sum.HasValue() != c.has || sum.HasBytes() != c.hasBytes || sum.Exact() != c.exact || sum.Packets != c.packets {
			t.Errorf("%s: %+v", name, sum)
		}
		if sum.Discontinuities != c.entry.Continuity.Discontinuities {
			t.Errorf("%s: %d discontinuities", name, sum.Discontinuities)
		}
	}
	if sums := s.SumUp([]shm.Entry{good}, make([]shm.Value, 1)); sums[0].HasValue() {
		t.Error("a group whose counters were never sampled has a value")
	}
}
