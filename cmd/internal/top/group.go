package top

import (
	"slices"
	"strings"

	"github.com/flowtally/flowtally/cmd/internal/selection"
	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/shm"
)

// group has the counters whose sum is a row.
type group struct {
	id      selection.Group
	members []*row
}

// ratesApart limits the error of a sum's rate. The values of a sum are sampled at different times; if these are further
// apart than 1/ratesApart of the time between two sums, the sum has no rate.
const ratesApart = 100

// regroup sorts the counters into groups, and returns one row for each group, in order of name. An existing group keeps
// its row.
func regroup(s *selection.Selection, old, counters []*row) []*row {
	rowByGroup := make(map[selection.Group]*row)
	for _, r := range old {
		r.group.members = r.group.members[:0]
		rowByGroup[r.group.id] = r
	}
	for _, c := range counters {
		id := s.Group(c.entry)
		r := rowByGroup[id]
		if r == nil {
			r = &row{
				Counter: view.Counter{Name: id.String(), Kind: id.Kind},
				text:    strings.ToLower(id.String()),
				group:   &group{id: id},
			}
			rowByGroup[id] = r
		}
		r.group.members = append(r.group.members, c)
	}

	var out []*row
	for _, r := range rowByGroup {
		if len(r.group.members) > 0 {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *row) int { return a.group.id.Compare(b.group.id) })
	return out
}

// handles appends the handle of the row's counter, or those of all members of its group.
func (r *row) handles(dst []shm.Handle) []shm.Handle {
	if r.group == nil {
		return append(dst, r.handle())
	}
	for _, m := range r.group.members {
		dst = append(dst, m.handle())
	}
	return dst
}

// addUp sets the row to the sum of its members' published values. If the members have changed, the row has no rate.
func (r *row) addUp(values []shm.Value, consecutive bool) {
	sum := selection.Sum{Group: r.group.id}
	for i, m := range r.group.members {
		sum.Add(m.entry, values[i])
	}

	last := r.Sum
	r.Counter = view.NewSum(sum)
	r.stale = r.Stale
	v := shm.Value{Packets: r.Counter.Packets, Bytes: r.Counter.Bytes, SampledAt: r.SampledAt}
	switch {
	case !consecutive || last == nil || last.Identity != sum.Identity:
		r.before = shm.Value{}
	case v.SampledAt > r.value.SampledAt:
		r.before = r.value
		r.apart = max(last.Newest-last.Oldest, sum.Newest-sum.Oldest)
	}
	r.value = v
}

// hasBytes reports whether the second value of a row is bytes.
func (r *row) hasBytes() bool { return !r.Completion() && (r.Sum == nil || r.Sum.HasBytes()) }
