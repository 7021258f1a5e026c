package engine

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/frame"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/soft"
)

func TestMain(m *testing.M) {
	if code, is := TrialMain(); is {
		os.Exit(code)
	}
	_ = lab.Isolate(lab.ForTests) // without the privilege the tests run where they are
	code := m.Run()
	software.Close()
	os.Exit(code)
}

var software soft.Libraries

// softLibs is the software libibverbs and libmlx5, built once per run.
func softLibs(t *testing.T) ibvtest.Libs {
	t.Helper()
	need.Cap(t, "net_admin", "sys_admin", "net_raw")
	need.Netns(t)
	return software.Get(t)
}

// softNIC is a wire whose near end is the netdev of a software device. Every one has its own
// name: a library that a dead device has left something in stays loaded.
type softNIC struct {
	wire   *lab.Wire
	device string
	cfg    dataplane.Config
	env    ibvtest.Env
}

// newSoftNIC makes the wire. The environment is read by what is opened after set.
func newSoftNIC(t *testing.T) *softNIC {
	t.Helper()
	libs := softLibs(t)
	wire, err := lab.NewWire(lab.WireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { wire.Close() })
	device := lab.Unique("sw")
	return &softNIC{
		wire: wire, device: device,
		cfg: dataplane.Config{
			Interfaces: []dataplane.Interface{{Name: wire.Near.Name}},
			RDMA:       dataplane.RDMAConfig{Library: libs.Verbs, MLX5: libs.MLX5},
			Poll:       dataplane.PollConfig{Period: time.Millisecond},
		},
		env: ibvtest.Env{
			Devices:    []ibvtest.Device{{Name: device, Netdev: wire.Near.Name}},
			Statistics: filepath.Join(t.TempDir(), "statistics"),
		},
	}
}

// controlled has the device listen to what is returned, from when it is opened.
func (s *softNIC) controlled(t *testing.T) *ibvtest.Control {
	t.Helper()
	control, err := ibvtest.NewControl(filepath.Join(t.TempDir(), "control"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { control.Close() })
	s.env.Control = control.Path()
	return control
}

// open opens the backend on a thread in the near namespace.
func (s *softNIC) open(t *testing.T) *rdmaBackend {
	t.Helper()
	return s.openWith(t, slog.New(slog.DiscardHandler))
}

func (s *softNIC) openWith(t *testing.T, log *slog.Logger) *rdmaBackend {
	t.Helper()
	s.env.Set(t.Setenv)
	var b *rdmaBackend
	err := s.wire.Near.NS.Do(func() (err error) {
		b, err = newRDMABackend(t.Context(), s.cfg, log, nil)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(false); err != nil {
			t.Errorf("closing the backend: %v", err)
		}
	})
	return b
}

// calls is how often a verb or a firmware command was called.
func (s *softNIC) calls(t *testing.T, name string) uint64 {
	t.Helper()
	stats, err := ibvtest.ReadStatistics(s.env.Statistics)
	if err != nil {
		t.Fatal(err)
	}
	return stats[name]
}

// stream is a flow and frames that are its and no other's.
type stream struct {
	flow   flow.Flow
	frames [][]byte
	verbs  bool // verbs can count it, too
}

func ownFrames(t *testing.T) []stream {
	t.Helper()
	eth := frame.Eth{Dst: [6]byte{2, 0, 0, 0, 0, 1}, Src: [6]byte{2, 0, 0, 0, 0, 2}}
	ip4 := frame.IPv4{Src: frame.Addr("198.51.100.1"), Dst: frame.Addr("192.0.2.1")}
	ip6 := frame.IPv6{Src: frame.Addr("2001:db8::1"), Dst: frame.Addr("2001:db8::2")}
	options := ip4
	options.Options = []byte{7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0}
	key := uint32(7)
	out := []stream{
		{verbs: true, flow: flow.Flow{Name: "udp4", Match: match(t, "ipv4 dst 192.0.2.0/24 udp dport 1001")},
			frames: [][]byte{frame.Sized(60, eth, ip4, frame.UDP{Src: 9, Dst: 1001}), frame.Sized(1514, eth, options, frame.UDP{Src: 9, Dst: 1001})}},
		{verbs: true, flow: flow.Flow{Name: "udp6", Match: match(t, "ipv6 src 2001:db8::/64 udp sport 9 dport 1002")},
			frames: [][]byte{frame.Sized(99, eth, ip6, frame.UDP{Src: 9, Dst: 1002}), frame.Sized(120, eth, ip6, frame.Ext{Type: frame.HopByHop}, frame.UDP{Src: 9, Dst: 1002})}},
		{verbs: true, flow: flow.Flow{Name: "tcp", Match: match(t, "tcp dport 443")},
			frames: [][]byte{frame.Sized(60, eth, ip4, frame.TCP{Src: 9, Dst: 443}), frame.Sized(1514, eth, ip6, frame.TCP{Src: 9, Dst: 443})}},
		{verbs: true, flow: flow.Flow{Name: "range", Match: match(t, "ipv4 udp dport 2000-2999")},
			frames: [][]byte{frame.Sized(60, eth, ip4, frame.UDP{Src: 9, Dst: 2000}), frame.Sized(61, eth, ip4, frame.UDP{Src: 9, Dst: 2999}), frame.Sized(62, eth, ip4, frame.UDP{Src: 9, Dst: 2517})}},
		{verbs: true, flow: flow.Flow{Name: "icmp", Match: match(t, "ipv6 icmp")},
			frames: [][]byte{frame.Sized(118, eth, ip6, frame.ICMPv6{Type: 128})}},
		{flow: flow.Flow{Name: "echo", Match: match(t, "ipv4 icmp type 8")},
			frames: [][]byte{frame.Sized(98, eth, ip4, frame.ICMP{Type: 8})}},
		{flow: flow.Flow{Name: "too-big", Match: match(t, "ipv4 icmp type 3 code 4")},
			frames: [][]byte{frame.Sized(70, eth, ip4, frame.ICMP{Type: 3, Code: 4})}},
		{verbs: true, flow: flow.Flow{Name: "vxlan", Match: match(t, "ipv4 vxlan vni 5 inner ipv4 dst 10.0.0.1 tcp dport 80")},
			frames: [][]byte{frame.Sized(200, eth, ip4, frame.UDP{Src: 9, Dst: 4789, NoSum: true}, frame.VXLAN{VNI: 5}, eth, frame.IPv4{Src: frame.Addr("10.0.0.2"), Dst: frame.Addr("10.0.0.1")}, frame.TCP{Src: 9, Dst: 80})}},
		{verbs: true, flow: flow.Flow{Name: "type", Match: match(t, "eth type 0x88b5")},
			frames: [][]byte{frame.Sized(60, frame.Eth{Dst: eth.Dst, Src: eth.Src, Type: 0x88b5})}},
		{verbs: true, flow: flow.Flow{Name: "tos", Match: match(t, "ipv4 proto 89 tos 0x10/0xfc")},
			frames: [][]byte{frame.Sized(80, eth, frame.IPv4{Src: ip4.Src, Dst: ip4.Dst, TOS: 0x11, Proto: 89}, frame.Payload(20))}},
		{flow: flow.Flow{Name: "vlan", Match: match(t, "vlan id 100 ipv4 udp dport 5000")},
			frames: [][]byte{
				frame.Sized(68, eth, frame.VLAN{ID: 100, PCP: 3}, ip4, frame.UDP{Src: 9, Dst: 5000}),
				frame.Sized(70, eth, frame.VLAN{ID: 100, TPID: frame.TypeQinQ}, ip4, frame.UDP{Src: 9, Dst: 5000})}},
		{flow: flow.Flow{Name: "qinq", Match: match(t, "vlan id 200 vlan id 7 ipv6 tcp dport 5000")},
			frames: [][]byte{frame.Sized(300, eth, frame.VLAN{ID: 200, TPID: frame.TypeQinQ}, frame.VLAN{ID: 7}, ip6, frame.TCP{Src: 9, Dst: 5000})}},
		{flow: flow.Flow{Name: "gre", Match: match(t, "ipv4 gre key 7 inner ipv6 udp")},
			frames: [][]byte{frame.Sized(150, eth, ip4, frame.GRE{Key: &key}, ip6, frame.UDP{Src: 1, Dst: 2})}},
		{flow: flow.Flow{Name: "fragments", Match: match(t, "ipv4 dst 192.0.2.30 frag yes")},
			frames: frame.FragmentsIPv4([]frame.Layer{eth}, frame.IPv4{Src: ip4.Src, Dst: frame.Addr("192.0.2.30"), ID: 9}, 512, frame.UDP{Src: 9, Dst: 53}, frame.Payload(1200))},
		{verbs: true, flow: flow.Flow{Name: "out4", Direction: flow.Egress, Match: match(t, "ipv4 udp dport 7000")},
			frames: [][]byte{frame.Sized(64, eth, ip4, frame.UDP{Src: 9, Dst: 7000})}},
		{flow: flow.Flow{Name: "out6", Direction: flow.Egress, Match: match(t, "vlan id 300 ipv6 udp dport 7000")},
			frames: [][]byte{frame.Sized(300, eth, frame.VLAN{ID: 300}, ip6, frame.UDP{Src: 9, Dst: 7000})}},
	}
	for i := range out {
		out[i].flow.Priority = 100
	}
	return out
}

// send sends n frames of those streams that go that way, mixed, and adds what it sent.
func (s *softNIC) send(t *testing.T, streams []stream, d flow.Direction, n uint64, sent map[string]backend.Pair) {
	t.Helper()
	var mix []lab.Stream
	for _, x := range streams {
		if x.flow.Direction == d {
			mix = append(mix, lab.Stream{Name: x.flow.Name, Frames: x.frames})
		}
	}
	end := s.wire.Far
	if d == flow.Egress {
		end = s.wire.Near
	}
	snd, err := end.NewSender(mix, lab.SenderOptions{Stack: d == flow.Egress})
	if err != nil {
		t.Fatal(err)
	}
	defer snd.Close()
	if err := snd.Run(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if err := snd.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if snd.Refused() > 0 {
		t.Fatalf("%d frames were refused on their way", snd.Refused())
	}
	for i, x := range snd.Sent() {
		sent[mix[i].Name] = backend.Add(sent[mix[i].Name], backend.Pair(x))
	}
}

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
		mlx5    func(ibvtest.Libs) string // nil: the newest
	}{
		{"devx", nil, map[flow.Direction]string{flow.Ingress: "devx", flow.Egress: "devx"}, nil},
		{"devx of rdma-core 44", nil, map[flow.Direction]string{flow.Ingress: "devx", flow.Egress: "devx"}, func(l ibvtest.Libs) string { return l.MLX544 }},
		{"devx of rdma-core 61.0", nil, map[flow.Direction]string{flow.Ingress: "devx", flow.Egress: "devx"}, func(l ibvtest.Libs) string { return l.MLX561 }},
		{"verbs", []string{"devx"}, map[flow.Direction]string{flow.Ingress: "dont-trap", flow.Egress: "egress"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSoftNIC(t)
			s.env.Without = c.without
			if c.mlx5 != nil {
				s.cfg.RDMA.MLX5 = c.mlx5(softLibs(t))
			}
			s.cfg.XDP = dataplane.XDPConfig{PinDir: filepath.Join(fs, "flowtally-test", lab.Unique("r")), MaxFlows: 1024}
			b := s.open(t)
			var x *xdp.Backend
			if err := s.wire.Near.NS.Do(func() (err error) {
				x, err = xdp.New(xdp.Options{Interfaces: s.cfg.Interfaces, Config: s.cfg.XDP, Flows: s.cfg.Flows, Logger: slog.New(slog.DiscardHandler)})
				return err
			}); err != nil {
				t.Fatal(err)
			}
			defer x.Close(false)

			streams := ownFrames(t)
			var flows []backend.Placed
			for i, st := range streams {
				err := b.Fits(st.flow, nil, nil)
				if fits := st.verbs || c.without == nil; fits != (err == nil) {
					t.Errorf("%s: %v, want that it fits: %v", st.flow.Name, err, fits)
				}
				if err == nil {
					flows = append(flows, backend.Placed{Flow: st.flow, Order: uint32(i)})
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
			sent := make(map[string]backend.Pair)
			s.send(t, streams, flow.Ingress, 60_000, sent)
			s.send(t, streams, flow.Egress, 10_000, sent)

			for i, f := range flows {
				sampledAs(t, b, in[i].ID, sent[f.Name])
				var xdp [1]backend.Pair
				if err := x.Read([]uint32{inXDP[i].ID}, xdp[:]); err != nil {
					t.Fatal(err)
				}
				if xdp[0] != sent[f.Name] {
					t.Errorf("%s: sent %+v, XDP counts %+v", f.Name, sent[f.Name], xdp[0])
				}
				want := "rdma:" + s.device + "/" + c.modes[f.Direction]
				if in[i].Source.String() != want || in[i].Basis != "l2" {
					t.Errorf("%s: installed %+v, want source %s", f.Name, in[i], want)
				}
			}
			if n := s.calls(t, "ibv_create_qp") + s.calls(t, "ibv_create_flow"); c.without == nil && n != 0 {
				t.Errorf("%d queue pairs and verbs flows were made: DevX needs none", n)
			}
			if n := s.calls(t, "NIC_DROPS"); n != 0 {
				t.Errorf("the software NIC itself has missed %d frames", n)
			}
			// What came until a flow was removed is in its last value, sampled or not; what
			// came after is not.
			s.send(t, streams, flow.Ingress, 5_000, sent)
			if err := b.Remove(t.Context(), flows); err != nil {
				t.Fatal(err)
			}
			s.send(t, streams, flow.Ingress, 5_000, make(map[string]backend.Pair))
			for i, f := range flows {
				if got, _ := sampleOf(t, b, in[i].ID); got != sent[f.Name] {
					t.Errorf("%s: after its removal it shows %+v, want %+v", f.Name, got, sent[f.Name])
				}
			}
		})
	}
}

// TestRemovedFlowsAreReadToTheEnd: what came since the last sample is in the value that a
// removed flow leaves, whatever mode it was counted in.
func TestRemovedFlowsAreReadToTheEnd(t *testing.T) {
	for _, c := range []struct {
		mode    string
		without []string
		action  flow.Action
		steal   bool
	}{
		{mode: "devx"},
		{mode: "dont-trap", without: []string{"devx"}},
		{mode: "drop", without: []string{"devx"}, action: flow.Drop},
		{mode: "steal", without: []string{"devx", "dont_trap"}, steal: true},
	} {
		t.Run(c.mode, func(t *testing.T) {
			s := newSoftNIC(t)
			s.env.Without, s.cfg.RDMA.Steal = c.without, c.steal
			s.cfg.Poll.Period = time.Hour // no sample but those of Install and Remove
			var errs strings.Builder
			b := s.openWith(t, slog.New(slog.NewTextHandler(&errs, &slog.HandlerOptions{Level: slog.LevelError})))
			streams := ownFrames(t)[:3]
			var flows []backend.Placed
			for _, st := range streams {
				st.flow.Action = c.action
				flows = append(flows, backend.Placed{Flow: st.flow})
			}
			in := mustInstall(t, b, flows...)
			if in[0].Source.Modes() != c.mode {
				t.Fatalf("counted in mode %s", in[0].Source.Modes())
			}
			sent := make(map[string]backend.Pair)
			s.send(t, streams, flow.Ingress, 1000, sent)
			if err := b.Remove(t.Context(), flows); err != nil {
				t.Fatal(err)
			}
			s.send(t, streams, flow.Ingress, 1000, make(map[string]backend.Pair))
			for i, f := range flows {
				if got, _ := sampleOf(t, b, in[i].ID); got != sent[f.Name] {
					t.Errorf("%s: shows %+v, want %+v", f.Name, got, sent[f.Name])
				}
			}
			if errs.Len() > 0 {
				t.Errorf("it logs: %s", errs.String())
			}
		})
	}
}
