package selection

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/shm"
)

// Group identifies the counters to add up: those of one kind and unit, with equal values of the labels in Options.SumBy.
// Groups are comparable, so they can be keys of a map.
type Group struct {
	Kind, Unit string
	labels     string // for each key: the key, "=" and the value if the counter has the label, and NUL
}

// Label is a label of a group.
type Label struct {
	Key, Value string
	Has        bool // false for the group of counters without this label
}

// Sums reports whether the user asked for sums instead of single counters.
func (s *Selection) Sums() bool { return len(s.sumBy) > 0 }

// Group returns the group of a counter.
func (s *Selection) Group(e shm.Entry) Group {
	var b strings.Builder
	for _, key := range s.sumBy {
		b.WriteString(key)
		if value, has := e.Labels[key]; has {
			b.WriteString("=" + value)
		}
		b.WriteByte(0)
	}
	return Group{Kind: e.Kind, Unit: cmp.Or(e.Unit, "packets"), labels: b.String()}
}

// Labels returns the labels of a group in the order of Options.SumBy.
func (g Group) Labels() (out []Label) {
	for rest := g.labels; rest != ""; {
		var text string
		text, rest, _ = strings.Cut(rest, "\x00")
		key, value, has := strings.Cut(text, "=")
		out = append(out, Label{key, value, has})
	}
	return out
}

// String returns conditions that select the group, in the notation of Options.Label: "team=ops,!site".
func (g Group) String() string {
	var words []string
	for _, l := range g.Labels() {
		if l.Has {
			words = append(words, l.Key+"="+l.Value)
		} else {
			words = append(words, "!"+l.Key)
		}
	}
	return strings.Join(words, ",")
}

// Compare orders groups by their labels, then by kind and unit.
func (g Group) Compare(o Group) int {
	return cmp.Or(cmp.Compare(g.labels, o.labels), cmp.Compare(g.Kind, o.Kind), cmp.Compare(g.Unit, o.Unit))
}

// Sum is the sum of the counters of a group. Callers should add values of one snapshot only.
type Sum struct {
	Group
	Members int // counters
	Absent  int // members without a value, missing from Packets and Bytes

	Packets, Bytes uint64 // or completions and errors
	TooLarge       bool   // Packets or Bytes would be above 2^64 - 1
	Oldest, Newest int64  // sample times of the values; 0 if no member has a value

	Invalid, Stale, Ambiguous int      // number of such members
	Discontinuities           uint64   // of all members together
	Identity                  uint64   // a hash of the members, to notice when they change
	Bases                     []string // byte bases of the values, sorted; bytes on different bases do not add up
}

// Add adds a counter and its value.
func (s *Sum) Add(e shm.Entry, v shm.Value) {
	s.Members++
	s.Identity = (s.Identity^uint64(e.Handle.Index)<<32^uint64(e.Handle.Generation))*0x100000001b3 + 1 // like FNV
	s.Discontinuities += e.Continuity.Discontinuities
	if !e.Valid {
		s.Invalid++
	}
	if e.Stale {
		s.Stale++
	}
	if e.Ambiguous {
		s.Ambiguous++
	}
	if v.SampledAt == 0 {
		s.Absent++
		return
	}

	var carryPackets, carryBytes uint64
	s.Packets, carryPackets = bits.Add64(s.Packets, v.Packets, 0)
	s.Bytes, carryBytes = bits.Add64(s.Bytes, v.Bytes, 0)
	s.TooLarge = s.TooLarge || carryPackets|carryBytes != 0

	if s.Oldest == 0 || v.SampledAt < s.Oldest {
		s.Oldest = v.SampledAt
	}
	s.Newest = max(s.Newest, v.SampledAt)
	if at, found := slices.BinarySearch(s.Bases, e.ByteBasis); !found {
		s.Bases = slices.Insert(s.Bases, at, e.ByteBasis)
	}
}

// HasValue reports whether Packets is meaningful: at least one member has a value, and the sum has not overflowed.
func (s *Sum) HasValue() bool { return s.Oldest != 0 && !s.TooLarge }

// HasBytes reports whether Bytes is meaningful: all members count bytes on the same basis.
func (s *Sum) HasBytes() bool { return s.HasValue() && len(s.Bases) == 1 }

// Exact reports whether the sum includes a valid value of every member.
func (s *Sum) Exact() bool { return s.HasValue() && s.Absent == 0 && s.Invalid == 0 }

// SumUp returns the sum of each group, in the order of the groups. Callers must select the entries first. values[i] is
// the value of entries[i].
func (s *Selection) SumUp(entries []shm.Entry, values []shm.Value) []Sum {
	sumByGroup := make(map[Group]*Sum)
	for i, e := range entries {
		g := s.Group(e)
		if sumByGroup[g] == nil {
			sumByGroup[g] = &Sum{Group: g}
		}
		sumByGroup[g].Add(e, values[i])
	}

	out := make([]Sum, 0, len(sumByGroup))
	for _, sum := range sumByGroup {
		out = append(out, *sum)
	}
	slices.SortFunc(out, func(a, b Sum) int { return a.Group.Compare(b.Group) })
	return out
}
