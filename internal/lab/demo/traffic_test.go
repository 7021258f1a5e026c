package demo

import (
	"encoding/json"
	"testing"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/oracle"
)

// The traffic has enough flows of every kind, valid, uniquely named, and each frame
// of a size that veth takes.
func TestTrafficHasEnoughValidFlowsAndFrames(t *testing.T) {
	in, streams, err := declare("native", "eth0", flow.Ingress, ingress())
	if err != nil {
		t.Fatal(err)
	}
	out, outStreams, err := declare("native", "eth0", flow.Egress, egress())
	if err != nil {
		t.Fatal(err)
	}
	if len(in) < 12 {
		t.Errorf("%d ingress flows, want at least 12", len(in))
	}
	seen := map[string]bool{}
	for _, f := range append(in, out...) {
		if err := f.Validate(); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
		if seen[f.Name] {
			t.Errorf("two flows are called %s", f.Name)
		}
		seen[f.Name] = true
	}
	// All but the streams of the kernel's TCP have frames.
	if len(streams) != len(in)-1 || len(outStreams) != len(out)-1 {
		t.Errorf("streams: %d of %d ingress, %d of %d egress flows", len(streams), len(in), len(outStreams), len(out))
	}
	for _, s := range append(streams, outStreams...) {
		for i, f := range s.Frames {
			if len(f) < 60 || len(f) > 1514 {
				t.Errorf("frame %d of %s has %d bytes", i, s.Name, len(f))
			}
		}
	}
}

// Every frame belongs to the flow that it is sent for, and the flow wins over
// all others that match it: the plain matcher says so.
func TestFramesBelongToTheirFlows(t *testing.T) {
	overlaps := 0
	for _, set := range []struct {
		d     flow.Direction
		items []traffic
	}{{flow.Ingress, ingress()}, {flow.Egress, egress()}} {
		d, items := set.d, set.items
		flows, streams, err := declare("native", "eth0", d, items)
		if err != nil {
			t.Fatal(err)
		}
		m := oracle.New(flows)
		for _, s := range streams {
			for i, frame := range s.Frames {
				p := oracle.Packet{Frame: frame, Direction: d, Interface: "eth0"}
				if at, ok := m.Match(p); !ok || flows[at].Name != s.Name {
					t.Errorf("frame %d of %s: matched %t, place %d", i, s.Name, ok, at)
				}
				for j := range flows {
					if _, also := oracle.New(flows[j : j+1]).Match(p); also && flows[j].Name != s.Name {
						overlaps++
					}
				}
			}
		}
	}
	if overlaps == 0 {
		t.Error("no frame is matched by two flows: priorities are not shown")
	}
}

func TestReportIsExactOnlyIfAllCountsAreEqual(t *testing.T) {
	same := Count{Name: "a", SentPackets: 2, Packets: 2, SentBytes: 120, Bytes: 120}
	for _, tc := range []struct {
		name   string
		change func(*Count)
		exact  bool
	}{
		{"equal", func(*Count) {}, true},
		{"a packet less", func(c *Count) { c.Packets-- }, false},
		{"a packet more", func(c *Count) { c.Packets++ }, false},
		{"a byte less", func(c *Count) { c.Bytes-- }, false},
		{"nothing sent", func(c *Count) { *c = Count{Name: "a"} }, false},
	} {
		c := same
		tc.change(&c)
		if got := report([]Count{same, c}); got.Exact != tc.exact {
			t.Errorf("%s: exact %t, want %t", tc.name, got.Exact, tc.exact)
		}
	}
	if report(nil).Exact {
		t.Error("no flow at all is not exact")
	}
	got, err := json.Marshal(report([]Count{same}))
	if err != nil {
		t.Fatal(err)
	}
	x, y := uint64(2), uint64(119)
	beside := same
	beside.XDPPackets, beside.XDPBytes, beside.Source = &x, &y, "rdma:mlx5_0/devx"
	if beside.Exact() {
		t.Error("XDP beside counted a byte less, and the count is exact")
	}
	if y++; !beside.Exact() {
		t.Error("all three agree, and the count is not exact")
	}
	wide, err := json.Marshal(beside)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"name":"a","sent_packets":2,"packets":2,"sent_bytes":120,"bytes":120,"xdp_packets":2,"xdp_bytes":120,"source":"rdma:mlx5_0/devx"}`; string(wide) != want {
		t.Errorf("JSON\n got %s\nwant %s", wide, want)
	}
	want := `{"schema":1,"flows":[{"name":"a","sent_packets":2,"packets":2,"sent_bytes":120,"bytes":120}],"exact":true}`
	if string(got) != want {
		t.Errorf("JSON\n got %s\nwant %s", got, want)
	}
}
