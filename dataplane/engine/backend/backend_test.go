package backend

import (
	"testing"

	"github.com/flowtally/flowtally/dataplane/flow"
)

func TestDescribeNamesOneFlowAndCountsSeveral(t *testing.T) {
	web, dns := Placed{Flow: flow.Flow{Name: "web"}}, Placed{Flow: flow.Flow{Name: "dns"}}
	if got, want := Describe([]Placed{web}), `flow "web"`; got != want {
		t.Errorf("one flow: %s, want %s", got, want)
	}
	if got, want := Describe([]Placed{web, dns}), `2 flows ("web", …)`; got != want {
		t.Errorf("two flows: %s, want %s", got, want)
	}
}
