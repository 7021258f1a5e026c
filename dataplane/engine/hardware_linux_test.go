package engine

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/rdma"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/soft"
)

// TestHardwareCountsWhatIsSentAndWhatXDPCounts sends real frames through a veth pair whose
// near end is counted on by the software NIC and by XDP at once.
func TestHardwareCountsWhatIsSentAndWhatXDPCounts(t *testing.T) {
	need.BPF(t)
	need.TCX(t)
	fs := need.BPFFS(t)
	for _, c := range []struct {
		name    string
		without []string
		modes   map[flow.Direction]string
		mlx5    func(ibvtest.Libs) string // nil: the host's libraries
	}{
		{"devx", nil, map[flow.Direction]string{flow.Ingress: "devx", flow.Egress: "devx"}, nil},
		// No suite packages the releases whose libmlx5 reads actions 24 bytes apart.
		{"devx of rdma-core 61.0", nil, map[flow.Direction]string{flow.Ingress: "devx", flow.Egress: "devx"}, func(l ibvtest.Libs) string { return l.Shim61 }},
		{"devx in bulk", nil, map[flow.Direction]string{flow.Ingress: "devx", flow.Egress: "devx"}, func(l ibvtest.Libs) string { return l.Shim }},
		{"verbs", []string{"devx"}, map[flow.Direction]string{flow.Ingress: "dont-trap", flow.Egress: "egress"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSoftNIC(t)
			if c.mlx5 != nil {
				s.Config.RDMA.MLX5 = c.mlx5(softLibs(t))
			}
			s.Env.Without = c.without
			s.Config.XDP = dataplane.XDPConfig{PinDir: filepath.Join(fs, "flowtally-test", lab.Unique("r")), MaxFlows: 1024}
			var b *rdma.Backend
			s.Env.Set(t.Setenv)
			if err := s.Wire.Near.NS.Do(func() (err error) {
				b, err = rdma.New(t.Context(), rdmaOptions(s.Config, slog.New(slog.DiscardHandler), nil))
				return err
			}); err != nil {
				t.Fatal(err)
			}
			defer b.Close(false)
			var x *xdp.Backend
			if err := s.Wire.Near.NS.Do(func() (err error) {
				x, err = xdp.New(xdp.Options{Interfaces: s.Config.Interfaces, Config: s.Config.XDP, Flows: s.Config.Flows, Logger: slog.New(slog.DiscardHandler)})
				return err
			}); err != nil {
				t.Fatal(err)
			}
			defer x.Close(false)

			streams := soft.Streams(t)
			var flows []backend.Placed
			for i, st := range streams {
				err := b.Fits(st.Flow, nil, nil)
				if fits := st.Verbs || c.without == nil; fits != (err == nil) {
					t.Errorf("%s: %v, want that it fits: %v", st.Flow.Name, err, fits)
				}
				if err == nil {
					flows = append(flows, backend.Placed{Flow: st.Flow, Order: uint32(i)})
				}
			}
			in, err := b.Install(t.Context(), flows)
			if err != nil {
				t.Fatal(err)
			}
			inXDP, err := x.Install(t.Context(), flows)
			if err != nil {
				t.Fatal(err)
			}
			sent := make(map[string]lab.Tally)
			s.Send(t, streams, flow.Ingress, 60_000, sent)
			s.Send(t, streams, flow.Egress, 10_000, sent)

			for i, f := range flows {
				want := backend.Pair(sent[f.Name])
				lab.Eventually(t, f.Name+" is counted", func() bool { return valueOf(t, b, in[i].ID) == want })
				var inXDPNow [1]backend.Pair
				if err := x.Read([]uint32{inXDP[i].ID}, inXDPNow[:]); err != nil {
					t.Fatal(err)
				}
				if inXDPNow[0] != want {
					t.Errorf("%s: sent %+v, XDP counts %+v", f.Name, sent[f.Name], inXDPNow[0])
				}
				source := "rdma:" + s.Device + "/" + c.modes[f.Direction]
				if in[i].Source.String() != source || in[i].Basis != "l2" {
					t.Errorf("%s: installed %+v, want source %s", f.Name, in[i], source)
				}
			}
			if n := s.Calls(t, "QP_CREATE") + s.Calls(t, "EX_CREATE_FLOW"); c.without == nil && n != 0 {
				t.Errorf("%d queue pairs and verbs flows were made: DevX needs none", n)
			}
			if n := s.Calls(t, "NIC_DROPS"); n != 0 {
				t.Errorf("the software NIC itself has missed %d frames", n)
			}
			// The last value of a flow has every packet until its removal, sampled or not, and no
			// later one.
			s.Send(t, streams, flow.Ingress, 5_000, sent)
			if err := b.Remove(t.Context(), flows); err != nil {
				t.Fatal(err)
			}
			s.Send(t, streams, flow.Ingress, 5_000, make(map[string]lab.Tally))
			for i, f := range flows {
				if got := valueOf(t, b, in[i].ID); got != backend.Pair(sent[f.Name]) {
					t.Errorf("%s: after its removal it shows %+v, want %+v", f.Name, got, sent[f.Name])
				}
			}
		})
	}
}

// valueOf reads one counter.
func valueOf(t *testing.T, b backend.Backend, id uint32) backend.Pair {
	t.Helper()
	p, err := backend.ReadOne(b, id)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
