package plugin

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

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
