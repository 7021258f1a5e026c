package plugin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

// flowList is the flows of an instance in the order of addition, which breaks ties of priority: the next process gets
// them. The list is large and read only when a process has died, so each flow is kept as the bytes of its message. A
// change costs the same however long the list is.
type flowList struct {
	flows []string          // encoded, in order; "" where one was removed
	at    map[string]uint32 // place in flows by name, which is a part of the encoded flow
}

// encodeFlows prepares add, which cannot fail. The flows of one call share one piece of memory: with a
// piece for each flow, the garbage of encoding between the pieces would take as much memory again.
func encodeFlows(flows []*pluginv1.Flow) ([]string, error) {
	var all []byte
	ends := make([]int, len(flows))
	for i, f := range flows {
		var err error
		if all, err = appendFlow(all, f); err != nil {
			return nil, err
		}
		ends[i] = len(all)
	}
	return cut(string(all), ends), nil
}

// appendFlow appends the message of a flow. Equal flows have equal messages.
func appendFlow(to []byte, f *pluginv1.Flow) ([]byte, error) {
	to, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(to, f)
	if err != nil {
		return nil, fmt.Errorf("flow %q: encoding: %w", f.Name, err)
	}
	return to, nil
}

// cut divides s at ends.
func cut(s string, ends []int) []string {
	out := make([]string, len(ends))
	from := 0
	for i, end := range ends {
		out[i] = s[from:end]
		from = end
	}
	return out
}

// add appends flows, given as messages and encoded. None of their names is in the list.
func (l *flowList) add(flows []*pluginv1.Flow, encoded []string) {
	if l.at == nil {
		l.at = make(map[string]uint32, len(flows))
	}
	for i, f := range flows {
		l.flows = append(l.flows, encoded[i])
		l.put(f.Name, len(l.flows)-1)
	}
}

// has reports whether a flow of that name is in the list.
func (l *flowList) has(name string) bool {
	_, listed := l.at[name]
	return listed
}

// remove takes flows out by name. Names that are not in the list are ignored.
func (l *flowList) remove(names []string) {
	for _, name := range names {
		if i, ok := l.at[name]; ok {
			l.flows[i] = ""
			delete(l.at, name)
		}
	}
	if removed := len(l.flows) - len(l.at); removed > len(l.at)+64 {
		l.compact()
	}
}

// set makes the list flows, given as messages and encoded, as dataplane.Service.SetFlows does.
func (l *flowList) set(flows []*pluginv1.Flow, encoded []string, keepOthers bool, renames map[string]string, keep []string) {
	if keepOthers {
		l.replace(flows, encoded, renames)
		return
	}
	was := *l
	*l = flowList{}
	l.add(flows, encoded)
	l.keep(was, renames, keep)
}

// replace puts flows in the places of those with their names, or with the names from which they are renamed, and appends
// the others.
func (l *flowList) replace(flows []*pluginv1.Flow, encoded []string, renames map[string]string) {
	oldName := make(map[string]string, len(renames))
	for from, to := range renames {
		if l.has(from) {
			oldName[to] = from
		}
	}
	for i, f := range flows {
		old := cmp.Or(oldName[f.Name], f.Name)
		at, listed := l.at[old]
		if !listed {
			l.add(flows[i:i+1], encoded[i:i+1])
			continue
		}
		delete(l.at, old)
		l.flows[at] = encoded[i]
		l.put(f.Name, int(at))
	}
}

// changed returns those of flows that differ from the list, or that it lacks. inPlace says that setting these alone, beside
// the others, makes the list what setting all of flows makes it: flows are the list from its beginning, new ones come
// last, and whatever of the list is not among them is in keep.
func (l *flowList) changed(flows []*pluginv1.Flow, keep []string) (changed []*pluginv1.Flow, inPlace bool, err error) {
	var encoded []byte
	next := 0 // place of the flow of the list that is to come next
	for _, f := range flows {
		for next < len(l.flows) && l.flows[next] == "" {
			next++
		}
		if encoded, err = appendFlow(encoded[:0], f); err != nil {
			return nil, false, err
		}
		if next < len(l.flows) && string(encoded) == l.flows[next] { // as nearly all are: no name is looked up
			next++
			continue
		}

		at, listed := l.at[f.Name]
		switch {
		case listed && int(at) == next:
			next++
		case listed || next < len(l.flows):
			return nil, false, nil
		}
		changed = append(changed, f)
	}

	rest := 0
	for _, f := range l.flows[next:] {
		if f != "" {
			rest++
		}
	}
	kept := make(map[uint32]bool, rest)
	for _, name := range keep {
		if at, listed := l.at[name]; listed && int(at) >= next {
			kept[at] = true
		}
	}
	return changed, len(kept) == rest, nil
}

// keep appends the flows of was that names lists and that were not renamed, in their order, unless the list has flows of
// their names.
func (l *flowList) keep(was flowList, renames map[string]string, names []string) {
	type place struct {
		name string
		at   uint32
	}
	var stay []place
	for _, name := range names {
		at, listed := was.at[name]
		_, renamed := renames[name]
		if listed && !renamed && !l.has(name) {
			stay = append(stay, place{name, at})
		}
	}
	slices.SortFunc(stay, func(a, b place) int { return cmp.Compare(a.at, b.at) })
	for _, p := range slices.Compact(stay) {
		l.flows = append(l.flows, was.flows[p.at])
		l.put(p.name, len(l.flows)-1)
	}
}

// compact drops the places and the memory of removed flows. It costs as much as the removals that led to it.
func (l *flowList) compact() {
	names := make([]string, len(l.flows))
	for name, i := range l.at {
		names[i] = name
	}

	var all strings.Builder
	var ends []int
	kept := names[:0]
	for i, f := range l.flows {
		if f != "" {
			all.WriteString(f)
			ends = append(ends, all.Len())
			kept = append(kept, names[i])
		}
	}

	l.flows = cut(all.String(), ends)
	l.at = make(map[string]uint32, len(kept))
	for i, name := range kept {
		l.put(name, i)
	}
}

// put notes that the flow of that name has place i. The key is a part of the encoded flow, so that no name is kept twice.
func (l *flowList) put(name string, i int) {
	start := strings.Index(l.flows[i], name)
	l.at[l.flows[i][start:start+len(name)]] = uint32(i)
}

// messages decodes the list.
func (l *flowList) messages() ([]*pluginv1.Flow, error) {
	out := make([]*pluginv1.Flow, 0, len(l.at))
	for _, encoded := range l.flows {
		if encoded == "" {
			continue
		}
		f := new(pluginv1.Flow)
		if err := proto.Unmarshal([]byte(encoded), f); err != nil {
			return nil, fmt.Errorf("decoding a flow: %w", err)
		}
		out = append(out, f)
	}
	return out, nil
}
