package cli

import (
	"bytes"
	"errors"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

func testPlacements(t *testing.T) []dataplane.Placement {
	t.Helper()
	match := func(text string) flow.Match {
		m, err := flow.ParseMatch(text)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	return []dataplane.Placement{
		{
			Flow:   flow.Flow{Name: "dns", Match: match("udp dport 53"), Priority: 10, Labels: map[string]string{"team": "net", "site": "ams"}},
			Source: dataplane.Source{Backend: "xdp", Device: "eth0,eth1", Mode: "native,generic"},
		},
		{
			Flow:     flow.Flow{Name: "out", Match: match("any"), Direction: flow.Egress, Action: flow.Drop, Interface: "eth0"},
			Source:   dataplane.Source{Backend: "sim"},
			Rejected: []dataplane.Rejection{{Backend: "xdp", Reason: "egress on eth0: not supported: kernel before 6.6"}},
		},
	}
}

func TestPrintPlacements(t *testing.T) {
	for name, asJSON := range map[string]bool{"flows.txt": false, "flows.json": true} {
		var b bytes.Buffer
		if err := printPlacements(&b, asJSON, testPlacements(t)); err != nil {
			t.Fatal(err)
		}
		golden(t, name, b.String())
	}
}

func TestParseMatchMarksMistakes(t *testing.T) {
	if _, err := parseMatch("tcp dport 443"); err != nil {
		t.Fatal(err)
	}
	_, err := parseMatch("ipv4 src 10.0.0.0/8 tcp dprt 443")
	if err == nil || !errors.Is(err, flow.ErrInvalid) {
		t.Fatalf("error %v, want flow.ErrInvalid", err)
	}
	golden(t, "match-mistake.txt", err.Error()+"\n")
}
