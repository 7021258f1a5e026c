package plugin

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

// The model is a slice: whatever was added and removed, the list holds the same flows in the same order.
func TestFlowListKeepsTheOrderOfAddition(t *testing.T) {
	compacted := 0
	rapid.Check(t, func(t *rapid.T) {
		var list flowList
		var model []*pluginv1.Flow
		added := 0
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if n := rapid.IntRange(0, len(model)).Draw(t, "removed"); rapid.Bool().Draw(t, "remove") {
				names := []string{"absent"}
				for range n {
					i := rapid.IntRange(0, len(model)-1).Draw(t, "which")
					names = append(names, model[i].Name)
					model = slices.Delete(model, i, i+1)
				}
				before := len(list.flows)
				list.remove(names)
				if len(list.flows) < before {
					compacted++
				}
			} else {
				var fresh []*pluginv1.Flow
				for range rapid.IntRange(1, 30).Draw(t, "added") {
					// A name that is a part of others, and the same bytes as a match.
					fresh = append(fresh, &pluginv1.Flow{Name: fmt.Sprint(added), Match: fmt.Sprintf("udp dport %d", added), Priority: uint32(added), Labels: map[string]string{"n": fmt.Sprint(added)}})
					added++
				}
				encoded, err := encodeFlows(fresh)
				if err != nil {
					t.Fatal(err)
				}
				list.add(fresh, encoded)
				model = append(model, fresh...)
			}
			got, err := list.messages()
			if err != nil {
				t.Fatal(err)
			}
			if !slices.EqualFunc(got, model, func(a, b *pluginv1.Flow) bool { return proto.Equal(a, b) }) {
				t.Fatalf("the list holds %v, want %v", got, model)
			}
			if len(list.flows) > 2*len(model)+64 {
				t.Fatalf("%d places for %d flows", len(list.flows), len(model))
			}
		}
	})
	if compacted == 0 {
		t.Error("the list was never compacted")
	}
}

// The plugin gets the changed flows alone, beside all others, where that makes its set and its answer the same.
func TestLeavingOutUnchangedFlowsChangesNoOutcome(t *testing.T) {
	leftOut, whole := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		numbered := func(i int) *pluginv1.Flow {
			return &pluginv1.Flow{
				Name: fmt.Sprint("f", i), Match: fmt.Sprintf("udp dport %d", i+1), Labels: map[string]string{"a": "1", "b": "2", "c": "3"},
				Direction: pluginv1.Direction_DIRECTION_INGRESS, Action: pluginv1.Action_ACTION_COUNT,
			}
		}
		var listed []*pluginv1.Flow
		for i := range rapid.IntRange(0, 8).Draw(t, "listed") {
			listed = append(listed, numbered(i))
		}
		removed := []string{fmt.Sprint("f", rapid.IntRange(0, 9).Draw(t, "removed before"))}
		list := func() *flowList {
			encoded, err := encodeFlows(listed)
			if err != nil {
				t.Fatal(err)
			}
			l := new(flowList)
			l.add(listed, encoded)
			l.remove(removed)
			return l
		}

		given, err := list().messages()
		if err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(0, 3).Draw(t, "steps") {
			at := rapid.IntRange(0, max(0, len(given)-1)).Draw(t, "at")
			switch step := rapid.IntRange(0, 4).Draw(t, "step"); {
			case step == 0 || len(given) == 0:
				given = append(given, numbered(20+len(given)))
			case step == 1:
				given[at].Priority++
			case step == 2:
				given = slices.Delete(given, at, at+1)
			case step == 3:
				given[0], given[at] = given[at], given[0]
			default:
				given = given[:at] // the end, which may stay
			}
		}
		keep := rapid.SliceOfN(rapid.SampledFrom([]string{"f5", "f6", "f7", "absent"}), 0, 4).Draw(t, "keep")

		set := func(flows []*pluginv1.Flow, opts dataplane.SetOptions) ([]*pluginv1.Flow, string, int) {
			l := list()
			current, err := l.messages()
			if err != nil {
				t.Fatal(err)
			}
			d, err := dataplane.DiffFlows(fromProto(t, current), fromProto(t, flows), opts)
			if err != nil {
				return current, err.Error(), 0
			}
			encoded, err := encodeFlows(flows)
			if err != nil {
				t.Fatal(err)
			}
			l.set(flows, encoded, opts.KeepOthers, nil, opts.Keep)
			after, err := l.messages()
			if err != nil {
				t.Fatal(err)
			}
			return after, d.String(), d.Unchanged
		}
		changed, inPlace, err := list().changed(given, keep)
		if err != nil {
			t.Fatal(err)
		}
		if !inPlace {
			whole++
			return
		}
		leftOut++
		want, wantText, wantUnchanged := set(given, dataplane.SetOptions{Keep: keep})
		got, text, unchanged := set(changed, dataplane.SetOptions{KeepOthers: true})
		if text != wantText || unchanged != wantUnchanged {
			t.Fatalf("%q, %d unchanged, want %q, %d", text, unchanged, wantText, wantUnchanged)
		}
		if !slices.EqualFunc(got, want, func(a, b *pluginv1.Flow) bool { return proto.Equal(a, b) }) {
			t.Fatalf("%d of %d flows given: the list holds %v, want %v", len(changed), len(given), got, want)
		}
	})
	if leftOut == 0 || whole == 0 {
		t.Errorf("%d requests were made smaller, %d not", leftOut, whole)
	}
}

func fromProto(t *rapid.T, in []*pluginv1.Flow) []flow.Flow {
	out, err := flowsFromProto(in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestOneChangedFlowIsGivenAlone(t *testing.T) {
	flows := []*pluginv1.Flow{{Name: "a", Match: "any"}, {Name: "b", Match: "udp"}, {Name: "c", Match: "tcp"}}
	encoded, err := encodeFlows(flows)
	if err != nil {
		t.Fatal(err)
	}
	var l flowList
	l.add(flows, encoded)
	flows[1] = &pluginv1.Flow{Name: "b", Match: "udp dport 53"}
	changed, inPlace, err := l.changed(flows[:2], []string{"c"})
	if err != nil || !inPlace || len(changed) != 1 || changed[0].Name != "b" {
		t.Errorf("%v, in place %t, %v", changed, inPlace, err)
	}
	if _, inPlace, err = l.changed(flows[:2], nil); err != nil || inPlace {
		t.Errorf("a flow that goes: in place %t, %v", inPlace, err)
	}
}
