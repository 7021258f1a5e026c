package dataplane_test

import (
	"slices"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

func TestSourceTextIsThatOfTheMirror(t *testing.T) {
	nic := dataplane.Device{Backend: flow.RDMA, Name: "mlx5_1", Mode: dataplane.ModeDevX}
	eth := dataplane.Device{Backend: flow.XDP, Name: "eth0", Mode: dataplane.ModeNative}
	for _, c := range []struct {
		s        dataplane.Source
		want     string
		backends []flow.Backend
	}{
		{dataplane.Source{}, "none", nil},
		{dataplane.Source{Backend: flow.Sim}, "sim", []flow.Backend{flow.Sim}},
		{dataplane.Source{Backend: flow.XDP}, "xdp", []flow.Backend{flow.XDP}},
		{dataplane.Source{Backend: flow.RDMA, Devices: []dataplane.Device{nic, nic}}, "rdma:mlx5_1,mlx5_1/devx,devx", []flow.Backend{flow.RDMA}},
		{dataplane.Source{Backend: flow.RDMA, Devices: []dataplane.Device{nic, eth}}, "rdma,xdp:mlx5_1,eth0/devx,native", []flow.Backend{flow.RDMA, flow.XDP}},
	} {
		if got := c.s.String(); got != c.want {
			t.Errorf("%+v is written %q, want %q", c.s, got, c.want)
		}
		if got := c.s.Backends(); !slices.Equal(got, c.backends) {
			t.Errorf("%s: backends %v, want %v", c.want, got, c.backends)
		}
		if got := c.s.IsZero(); got != (c.want == "none") || !c.s.Equal(c.s) || c.s.Equal(dataplane.Source{Backend: "other"}) {
			t.Errorf("%s: zero is %v", c.want, got)
		}
	}
}
