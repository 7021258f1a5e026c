package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// The script explain.txtar covers an instance that tells the order.
func TestFlowsOfAnInstanceThatTellsNoOrderAreSaidToBeByName(t *testing.T) {
	var said strings.Builder
	xdp := dataplane.Source{Backend: "xdp"}
	flows, ordered := inOrder(&Env{Stderr: &said}, []dataplane.Placement{
		{Flow: flow.Flow{Name: "all"}, Source: xdp}, {Flow: flow.Flow{Name: "zz"}, Source: xdp},
	})
	if ordered || len(flows) != 2 || !strings.Contains(said.String(), "does not tell the order") {
		t.Errorf("%d flows, ordered %t, said %q", len(flows), ordered, said.String())
	}
}

func TestFlowsThatAnInstanceDoesNotCountAreLeftOut(t *testing.T) {
	var said strings.Builder
	xdp := dataplane.Source{Backend: "xdp"}
	flows, ordered := inOrder(&Env{Stderr: &said}, []dataplane.Placement{
		{Flow: flow.Flow{Name: "a"}, Order: 3, Source: xdp}, {Flow: flow.Flow{Name: "refused"}, Order: 1}, {Flow: flow.Flow{Name: "z"}, Order: 2, Source: xdp},
	})
	var names []string
	for _, f := range flows {
		names = append(names, f.Name)
	}
	if !ordered || !slices.Equal(names, []string{"z", "a"}) || !strings.Contains(said.String(), "without 1 flow that the instance does not count") {
		t.Errorf("flows %q, ordered %t, said %q", names, ordered, said.String())
	}
}
