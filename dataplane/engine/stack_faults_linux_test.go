package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/hosted"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/frame"
)

// tryOnce runs the instance as it is configured, sends, and returns where the flow "web" is
// placed. It fails unless every packet is counted: the total goes on from one call to
// the next, whatever counted before.
func (b *softBench) tryOnce(t *testing.T) dataplane.Placement {
	t.Helper()
	b.Device = lab.Unique("mlx5_")
	if b.exclude {
		b.host = &hosted.Host{Excluded: map[string]string{b.Device: "the plugin died twice in ibv_create_flow"}}
	}
	for i := range b.Env.Devices {
		b.Env.Devices[i].Name = b.Device
	}
	b.run(t)
	defer b.e.Close()
	frames := make([][]byte, 512)
	for i := range frames {
		frames[i] = udpTo(1001, 60+i)
	}
	b.pass(t, flow.Ingress, frames)
	b.sent = backend.Add(b.sent, backend.Pair{Packets: 512, Bytes: 512*60 + 511*512/2})
	if got := b.total(t, "web"); got != b.sent {
		t.Errorf("counted %+v, want %+v", got, b.sent)
	}
	placed, err := b.e.Placements(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return placed[0]
}

func webFlow(t *testing.T) flow.Flow {
	return flow.Flow{Name: "web", Match: match(t, "ipv4 udp dport 1001")}
}

// A host without libibverbs, with the distribution's and no device, with one whose
// libibverbs is older: counting goes on in XDP, and the reason is kept where there is one.
func TestHostsWithoutHardwareCountInXDP(t *testing.T) {
	b := newSoftBench(t, webFlow(t))
	soft := b.Config.RDMA
	for _, c := range []struct {
		name    string
		rdma    dataplane.RDMAConfig
		without []string
		backend string
		reason  string
	}{
		{"no libibverbs", dataplane.RDMAConfig{Library: "/nonexistent/libibverbs.so.1"}, nil, "xdp", "libibverbs"},
		{"the loader's libibverbs", dataplane.RDMAConfig{}, nil, "xdp", "RDMA"},
		{"no libmlx5", dataplane.RDMAConfig{MLX5: "/nonexistent/libmlx5.so.1"}, nil, "rdma", ""},
		{"a device without flows", soft, []string{"flows", "devx"}, "xdp", "flow"},
		{"a device without counters", soft, []string{"counters", "devx"}, "xdp", "counter"},
		{"a device that would steal", soft, []string{"dont_trap", "devx"}, "xdp", "taking the packets away"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.Config.RDMA, b.Env.Without = c.rdma, c.without
			if c.rdma == (dataplane.RDMAConfig{}) {
				defer func(d []ibvtest.Device) { b.Env.Devices = d }(b.Env.Devices)
				b.Env.Devices = nil
			}
			p := b.tryOnce(t)
			if reason := refusedBy(p, "rdma"); string(p.Source.Backend) != c.backend || (reason == "") != (c.reason == "") || !strings.Contains(reason, c.reason) {
				t.Errorf("counted by %s, rdma's reason is %q; want %s, and one that names %q", p.Source.Backend, reason, c.backend, c.reason)
			}
			if c.backend == "rdma" {
				return
			}
			// Alone, rdma does not fall back: the same is an error.
			b.Config.Backend = "rdma"
			defer func() { b.Config.Backend = "" }()
			err := b.Wire.Near.NS.Do(func() error {
				e, err := New(t.Context(), b.Config, Options{})
				if err == nil {
					err = fmt.Errorf("it started: %w", e.Close())
				}
				return err
			})
			if err == nil || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("rdma alone: %v", err)
			}
		})
	}
}

// The kernel refuses every call that counting makes, one in each run. Either XDP counts the flow, with the reason, or
// counting can do without the call.
func TestEveryCallThatFailsLeavesCountingToXDP(t *testing.T) {
	for _, api := range []struct {
		name    string
		without []string
		called  []string // among others
	}{
		{"devx", nil, []string{"GET_CONTEXT", "FLOW_MATCHER_CREATE", "CREATE_FLOW", "ALLOC_FLOW_COUNTER", "QUERY_FLOW_COUNTER"}},
		{"verbs", []string{"devx"}, []string{"GET_CONTEXT", "QP_CREATE", "EX_CREATE_FLOW", "COUNTERS_CREATE", "COUNTERS_READ"}},
	} {
		t.Run(api.name, func(t *testing.T) {
			b := newSoftBench(t, webFlow(t))
			b.Env.Without = api.without
			if p := b.tryOnce(t); p.Source.Backend != "rdma" {
				t.Fatalf("counted by %s: %v", p.Source.Backend, p.Rejected)
			}
			all, err := ibvtest.ReadStatistics(b.Env.Statistics)
			if err != nil {
				t.Fatal(err)
			}
			called := slices.Sorted(maps.Keys(all))
			var inXDP []string
			for _, call := range called {
				b.Env.Fail = []ibvtest.Fault{{Verb: call, Errno: "EIO"}}
				p := b.tryOnce(t)
				reason := refusedBy(p, "rdma")
				t.Logf("%s fails: counted by %s %s", call, p.Source.String(), reason)
				if (p.Source.Backend == "xdp") != (reason != "") {
					t.Errorf("%s: counted by %s, rdma's reason is %q", call, p.Source.Backend, reason)
				}
				if p.Source.Backend == "xdp" {
					inXDP = append(inXDP, call)
				}
			}
			for _, call := range api.called {
				if !slices.Contains(called, call) {
					t.Errorf("%s is not among the calls %q", call, called)
				}
			}
			if len(called) < 8 || len(inXDP) < 3 {
				t.Errorf("%d calls were made, and %d of them matter", len(called), len(inXDP))
			}
		})
	}
}

// A device whose parser is not set up for ICMP leaves flows of its types to XDP, and those alone.
func TestICMPTypesNeedAParserOfTheDevice(t *testing.T) {
	ip4 := frame.IPv4{Src: frame.Addr("192.0.2.1"), Dst: frame.Addr("192.0.2.2")}
	request := frame.Sized(98, frame.Eth{}, ip4, frame.ICMP{Type: 8})
	reply := frame.Sized(98, frame.Eth{}, ip4, frame.ICMP{Type: 0})
	for _, c := range []struct {
		name    string
		faults  []ibvtest.Fault
		backend string
		reason  string
	}{
		{"set up", nil, "rdma", ""},
		{"not set up", []ibvtest.Fault{{Verb: "QUERY_HCA_CAP", Errno: "EINVAL"}}, "xdp", "flex parser"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newSoftBench(t,
				flow.Flow{Name: "ping", Match: match(t, "ipv4 icmp type 8"), Priority: 1},
				flow.Flow{Name: "web", Match: match(t, "ipv4 udp dport 1001"), Priority: 1})
			b.Env.Fail = c.faults
			b.run(t)
			placed, err := b.e.Placements(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range []string{c.backend, "rdma"} {
				if got := string(placed[i].Source.Backend); got != want {
					t.Errorf("%s: by %s, want %s: %v", placed[i].Flow.Name, got, want, placed[i].Rejected)
				}
			}
			if reason := refusedBy(placed[0], "rdma"); !strings.Contains(reason, c.reason) || c.reason == "" && reason != "" {
				t.Errorf("rdma's reason is %q, want %q", reason, c.reason)
			}
			for range 3 {
				b.pass(t, flow.Ingress, [][]byte{request})
				b.pass(t, flow.Ingress, [][]byte{reply})
			}
			if got, want := b.total(t, "ping"), (backend.Pair{Packets: 3, Bytes: 3 * 98}); got != want {
				t.Errorf("counted %+v, want %+v", got, want)
			}
		})
	}
}
