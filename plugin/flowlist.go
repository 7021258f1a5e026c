package plugin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

// flowList has the flows of an instance for the next plugin, in the order of addition, which decides between flows of equal
// priority. It can be long but is only read after a crash. So it stores the encoded message of each flow, and the cost of
// a change does not depend on the length.
type flowList struct {
	flows []string          // encoded; "" in the place of a removed flow
	at    map[string]uint32 // index into flows by name; the key shares memory with the encoded flow
}

// encodeFlows encodes flows ahead of add, so that add cannot fail. The flows of one call share one allocation. With many
// small ones, the garbage of the encoder between them would double the memory.
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

// appendFlow appends the encoded flow. Equal flows have equal encodings.
func appendFlow(to []byte, f *pluginv1.Flow) ([]byte, error) {
	to, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(to, f)
	if err != nil {
		return nil, fmt.Errorf("flow %q: encoding: %w", f.Name, err)
	}
	return to, nil
}

// cut splits s at the given ends.
func cut(s string, ends []int) []string {
	out := make([]string, len(ends))
	from := 0
	for i, end := range ends {
		out[i] = s[from:end]
		from = end
	}
	return out
}

// add appends new flows, given both as messages and encoded.
func (l *flowList) add(flows []*pluginv1.Flow, encoded []string) {
	if l.at == nil {
		l.at = make(map[string]uint32, len(flows))
	}
	for i, f := range flows {
		l.flows = append(l.flows, encoded[i])
		l.put(f.Name, len(l.flows)-1)
	}
}

// has reports whether the list has a flow of that name.
func (l *flowList) has(name string) bool {
	_, listed := l.at[name]
	return listed
}

// remove removes flows by name. It ignores unknown names.
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

// set changes the list as [dataplane.Service.SetFlows] changes the instance.
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

// replace puts each flow in the place of its former version, under its old name if it was renamed, and appends new flows.
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

// changed returns the flows that differ from the list or are new. inPlace reports whether it is enough to set these and keep
// all others. That is so if flows and list agree in their order from the beginning, new flows come last, and keep has the
// flows of the list that are not given.
func (l *flowList) changed(flows []*pluginv1.Flow, keep []string) (changed []*pluginv1.Flow, inPlace bool, err error) {
	var encoded []byte
	next := 0 // index of the list's flow to compare with
	for _, f := range flows {
		for next < len(l.flows) && l.flows[next] == "" {
			next++
		}
		if encoded, err = appendFlow(encoded[:0], f); err != nil {
			return nil, false, err
		}
		if next < len(l.flows) && string(encoded) == l.flows[next] { // the common case, without a map lookup
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

// keep appends the named flows of was, the list before a change, in their order. It leaves out renamed flows, and names that
// the list has already.
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

// compact frees the memory of removed flows. Its cost is proportional to the number of removals since the last time.
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

// put records index i for a name. The map key is a substring of the encoded flow, so that the name is not stored twice.
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
