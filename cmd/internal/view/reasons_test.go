package view

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/selection"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/probe"
)

// A group says how many flows share the reason, and names the first of them.
func TestReasonsOfSomeFlowsAreGrouped(t *testing.T) {
	ttl := dataplane.Rejection{Backend: "rdma", Reason: "no flow specification holds the TTL"}
	var flows []dataplane.Placement
	for i := range 4000 {
		flows = append(flows, dataplane.Placement{Flow: flow.Flow{Name: fmt.Sprintf("f%04d", i)}, Source: dataplane.Source{Backend: "sim"}})
		if i%2 == 0 {
			flows[i].Rejected = []dataplane.Rejection{ttl}
		}
	}
	flows[1].Rejected = []dataplane.Rejection{{Backend: "rdma", Reason: "its own"}}
	text := renderPlacements(flows)
	want := "not by rdma, 2,000 flows (f0000, f0002, f0004, f0006, f0008, f0010, f0012, f0014, … 1992 more): no flow specification holds the TTL\n"
	if !strings.HasSuffix(text, want) || strings.Count(text, ttl.Reason) != 1 || strings.Count(text, "\n  not rdma: its own\n") != 1 {
		t.Errorf("the end is\n%s", text[max(0, len(text)-400):])
	}
	var b bytes.Buffer
	if err := Flows(&b, true, new(selection.Selection), flows, nil, time.Time{}, Statuses{}, nil); err != nil {
		t.Fatal(err)
	}
	if want := `"shared":[{"backend":"rdma","reason_index":0,"flows":2000,"names":["f0000","f0002","f0004","f0006","f0008","f0010","f0012","f0014"]}]}`; !strings.HasSuffix(strings.TrimSpace(b.String()), want) {
		t.Errorf("JSON ends with %s", b.String()[b.Len()-300:])
	}
}

// Results of doctor that differ only in their object become one line. The JSON still has each of them.
func TestChecksAreGrouped(t *testing.T) {
	no := probe.Result{Feature: "free XDP hook", Answer: probe.No, Reason: "missing privilege", Fix: "run as root", Backend: "xdp"}
	var results []probe.Result
	for i := range 20 {
		r := no
		r.Object = fmt.Sprint("eth", i)
		results = append(results, r)
		if i == 0 {
			results = append(results, probe.Result{Feature: "kernel", Answer: probe.Yes}, probe.Result{Feature: "kernel", Answer: probe.Yes})
		}
	}
	results = append(results, probe.Result{Feature: "free XDP hook", Object: "eth99", Answer: probe.No, Reason: "held", Backend: "xdp"})
	want := `ANSWER  OBJECT                                                     FEATURE        REASON
✗ no    eth0, eth1, eth2, eth3, eth4, eth5, eth6, eth7, … 12 more  free XDP hook  missing privilege
  try: run as root
✓ yes   -                                                          kernel         -
✓ yes   -                                                          kernel         -
✗ no    eth99                                                      free XDP hook  held
`
	if got := renderChecks(results); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	var b bytes.Buffer
	if err := Checks(&b, true, results); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), `"object":"`); n != len(results) || !strings.Contains(b.String(), `"count":20,"objects":["eth0",`) {
		t.Errorf("%d checks: %s", n, &b)
	}
}
