package view

import (
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/demo"
)

func TestDemoTableAndVerdictNameEachDifference(t *testing.T) {
	counts := []demo.Count{
		{Name: "native/web4", SentPackets: 1234567, Packets: 1234567, SentBytes: 74074020, Bytes: 74074020},
		{Name: "native/ping6", SentPackets: 10, Packets: 9, SentBytes: 600, Bytes: 540},
		{Name: "native/idle"},
	}
	want := `FLOW               SENT    COUNTED  SENT BYTES  COUNTED BYTES
native/web4   1,234,567  1,234,567  74,074,020     74,074,020  exact
native/ping6         10          9         600            540  -1 packets, -60 bytes
native/idle           0          0           0              0  nothing sent
`
	if got := Demo(counts); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if v := DemoVerdict(demo.Report{Flows: counts}); !strings.Contains(v, "2 flows differ") {
		t.Errorf("verdict %q does not say that 2 flows differ", v)
	}
	if v := DemoVerdict(demo.Report{Flows: counts[:1], Exact: true}); !strings.Contains(v, "1,234,567 packets") || !strings.Contains(v, "exactly once") {
		t.Errorf("verdict %q", v)
	}
}

func TestDemoShowsXDPBesideRDMA(t *testing.T) {
	seven, six, bytes := uint64(7), uint64(6), uint64(420)
	counts := []demo.Count{
		{Name: "rdma/web4", SentPackets: 7, Packets: 7, SentBytes: 420, Bytes: 420, XDPPackets: &seven, XDPBytes: &bytes, Source: "rdma:swnic0/devx"},
		{Name: "rdma/dns", SentPackets: 7, Packets: 7, SentBytes: 420, Bytes: 420, XDPPackets: &six, XDPBytes: &bytes, Source: "rdma:swnic0/devx"},
	}
	want := `FLOW       SENT  RDMA  XDP  SENT BYTES  RDMA BYTES  XDP BYTES  COUNTED BY
rdma/web4     7     7    7         420         420        420  rdma:swnic0/devx  exact
rdma/dns      7     7    6         420         420        420  rdma:swnic0/devx  +0 packets, +0 bytes; xdp -1 packets, +0 bytes
`
	if got := Demo(counts); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	v := DemoVerdict(demo.Report{Flows: counts[:1], Exact: true, Backend: "rdma", SoftwareNIC: true})
	if !strings.Contains(v, "to a NIC that is software") || !strings.Contains(v, "by rdma and by xdp") {
		t.Errorf("verdict %q", v)
	}
}
