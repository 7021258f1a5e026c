package view

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/selection"
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
			Source: dataplane.Source{Backend: "xdp", Devices: []dataplane.Device{{Backend: "xdp", Name: "eth0", Mode: "native"}, {Backend: "xdp", Name: "eth1", Mode: "generic"}}},
		},
		{
			Flow:     flow.Flow{Name: "out", Match: match("any"), Direction: flow.Egress, Action: flow.Drop, Interface: "eth0"},
			Source:   dataplane.Source{Backend: "sim"},
			Rejected: []dataplane.Rejection{{Backend: "xdp", Reason: "egress on eth0: not supported: kernel before 6.6"}},
		},
		{
			Flow:   flow.Flow{Name: "web", Match: match("ipv4 dst 192.0.2.10 tcp dport 443"), Backend: "rdma"},
			Source: dataplane.Source{Backend: "rdma", Devices: []dataplane.Device{{Backend: "rdma", Name: "mlx5_0", Mode: "devx"}}},
		},
		{
			Flow:     flow.Flow{Name: "web-low-ttl", Match: match("ipv4 ttl 1 tcp dport 443")},
			Source:   dataplane.Source{Backend: "xdp", Devices: []dataplane.Device{{Backend: "xdp", Name: "eth0", Mode: "native"}}},
			Rejected: []dataplane.Rejection{{Backend: "rdma", Reason: "no flow specification holds the TTL"}},
		},
	}
}

func TestFlowsPrintAsInTheGoldenFiles(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	conditions := []dataplane.Condition{
		{Code: "rdma-device-lost", Severity: dataplane.High, Object: "mlx5_1", Text: "the device is gone: its flows are counted by xdp",
			Fix: "rdma link show; they go back by themselves", Since: now.Add(-90 * time.Second)},
		{Code: "mirror-full", Severity: dataplane.Low, Text: "60 of 64 counters are in use", Since: now.Add(-time.Hour)},
	}
	zero := now.Add(-time.Hour)
	counters := Statuses{known: true, statusByName: map[string]statusJSON{
		"dns": (&Counter{Unit: "packets", Generation: 1, SampledAt: 59*60*second + 5e6}).status(zero),
		"out": (&Counter{Unit: "packets", Generation: 7}).status(zero), // never sampled
		"web": (&Counter{Unit: "packets", Generation: 2, SampledAt: second, Discontinuities: 3, Stale: true, Ambiguous: true}).status(zero),
	}}
	for name, asJSON := range map[string]bool{"flows.txt": false, "flows.json": true} {
		var b bytes.Buffer
		if err := Flows(&b, asJSON, new(selection.Selection), testPlacements(t), conditions, now, counters, packetCost()); err != nil {
			t.Fatal(err)
		}
		compare(t, name, b.String())
	}
}

func TestSharedRejectionIsSaidOnce(t *testing.T) {
	none := dataplane.Rejection{Backend: "rdma", Reason: "no device"}
	own := dataplane.Rejection{Backend: "xdp", Reason: "its own"}
	flows := []dataplane.Placement{
		{Flow: flow.Flow{Name: "a"}, Source: dataplane.Source{Backend: "sim"}, Rejected: []dataplane.Rejection{none, own}},
		{Flow: flow.Flow{Name: "b"}, Source: dataplane.Source{Backend: "sim"}, Rejected: []dataplane.Rejection{none}},
	}
	want := `FLOW  PRIO  DIRECTION  ACTION  COUNTED BY  MATCH
a        0  ingress    count   sim         any
  not xdp: its own
b        0  ingress    count   sim         any
none by rdma: no device
`
	if got := renderPlacements(flows); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := renderPlacements(flows[1:]); !strings.Contains(got, "\n  not rdma: no device\n") || strings.Contains(got, "none by") {
		t.Errorf("one flow alone:\n%s", got)
	}
	// For an added flow the reason for the whole instance is not repeated, its own reason is.
	flows[0].Rejected[0].Always = true
	if got := renderAdded(flows[:1]); strings.Contains(got, "rdma") || !strings.Contains(got, "\n  not xdp: its own\n") {
		t.Errorf("one flow that was added:\n%s", got)
	}
}

// 10,000 flows share one reason, and a single flow has another one beside it.
func TestSharedReasonsAreListedOnceInJSON(t *testing.T) {
	var flows []dataplane.Placement
	for i := range 10_000 {
		flows = append(flows, dataplane.Placement{Flow: flow.Flow{Name: fmt.Sprint("f", i)}, Rejected: []dataplane.Rejection{{Backend: "rdma", Reason: "no device"}}})
	}
	flows[7].Rejected = append(flows[7].Rejected, dataplane.Rejection{Backend: "xdp", Reason: "its own"})
	var b bytes.Buffer
	if err := Flows(&b, true, new(selection.Selection), flows, nil, time.Time{}, Statuses{}, nil); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Flows []struct {
			Rejected []struct {
				Backend, Reason string
				Index           *int `json:"reason_index"`
			}
		}
		Reasons []string
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "no device"); n != 1 {
		t.Errorf("the sentence stands %d times", n)
	}
	for i, f := range got.Flows {
		r := f.Rejected[0]
		if r.Backend != "rdma" || r.Reason != "" || r.Index == nil || got.Reasons[*r.Index] != "no device" {
			t.Fatalf("flow %d is rejected by %+v", i, f.Rejected)
		}
	}
	if own := got.Flows[7].Rejected; len(own) != 2 || own[1].Reason != "its own" || own[1].Index != nil {
		t.Errorf("the flow with a reason of its own has %+v", own)
	}
}

func packetCost() *dataplane.Cost {
	return &dataplane.Cost{Nodes: 3.14, Rules: 1.25, NS: 29.4, IPv4: dataplane.WorstCost{Nodes: 3, Rules: 24, NS: 92}, IPv6: dataplane.WorstCost{Nodes: 1, NS: 10}, Other: dataplane.WorstCost{Nodes: 1, NS: 10}, Bound: 2048}
}
