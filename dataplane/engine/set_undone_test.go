package engine

import (
	"errors"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// The device refuses the new form of one flow after the rules of XDP and the entries of the mirror have changed. The
// totals of all flows go on from before the call, also of flows that were to count anew, and of a flow whose shadow
// has not seen all of its packets.
func TestAChangeThatIsUndoneKeepsTheTotals(t *testing.T) {
	w := &world{over: newFakeHardware(true), under: newFakeSoftware()}
	refused := match(t, "udp dport 4444")
	w.over.refuse = func(f flow.Flow) error {
		if f.Match.String() == refused.String() {
			return errors.New("no memory")
		}
		return nil
	}
	s := newStacked(t, t.TempDir()+"/", w, false)
	defer s.e.Close()
	web, dns, ssh := udpFlow(t, "web", "udp dport 80", 0), udpFlow(t, "dns", "udp dport 53", 0), udpFlow(t, "ssh", "udp dport 22", 0)
	web.Backend, dns.Backend = flow.RDMA, flow.XDP
	ports := map[string]uint16{}
	want := map[string]backend.Pair{}
	send := func() {
		t.Helper()
		for name, port := range ports {
			for range 10 {
				w.send(packetTo(port))
			}
			want[name] = backend.Add(want[name], backend.Pair{Packets: 10, Bytes: 600})
		}
		for name := range ports {
			if got := s.total(t, name); got != want[name] {
				t.Errorf("%s by %s: %+v, want %+v", name, s.source(name), got, want[name])
			}
		}
	}
	// XDP is not attached yet, so that the shadows miss these packets.
	if _, err := s.e.AddFlows(t.Context(), web, ssh); err != nil {
		t.Fatal(err)
	}
	ports["web"], ports["ssh"] = 80, 22
	send()
	if _, err := s.e.AddFlows(t.Context(), dns); err != nil {
		t.Fatal(err)
	}
	ports["dns"] = 53
	send()
	web2, dns2, ssh2 := web, dns, ssh
	web2.Match, dns2.Match, ssh2.Match = refused, match(t, "udp dport 54"), match(t, "udp dport 23")
	ssh2.Labels = map[string]string{"team": "ops"}
	if _, err := s.e.SetFlows(t.Context(), []flow.Flow{web2, dns2, ssh2}, dataplane.SetOptions{}); !errors.Is(err, dataplane.ErrUnplaced) {
		t.Fatalf("the call returned %v", err)
	}
	send()
	if by := s.source("web"); by != "rdma" {
		t.Errorf("web is counted by %q", by)
	}
}
