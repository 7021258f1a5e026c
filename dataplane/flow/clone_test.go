package flow_test

import (
	"testing"

	"github.com/flowtally/flowtally/dataplane/flow"
)

func TestCloneSharesNothing(t *testing.T) {
	m, err := flow.ParseMatch("udp dport 1")
	if err != nil {
		t.Fatal(err)
	}
	f := flow.Flow{Name: "a", Match: m, Labels: map[string]string{"k": "1"}}
	c := f.Clone()
	f.Match.UDP.Dst.Value, f.Labels["k"] = 2, "2"
	if c.Match.String() != "udp dport 1" || c.Labels["k"] != "1" {
		t.Errorf("the copy changed with the flow: %s, %v", c.Match, c.Labels)
	}
}
