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

// A hook of a flow is lost and refused, and a change of the flow's match is taken back. The flow declares the loss when the
// interface goes, or when the hook is taken.
func TestAChangeThatIsUndoneKeepsTheLossOfAHook(t *testing.T) {
	for name, end := range map[string]func(*fakeSoftware){"the interface goes": (*fakeSoftware).leave, "the hook is taken": (*fakeSoftware).take} {
		w := &world{over: newFakeHardware(true), under: newFakeSoftware()}
		w.over.refuse = func(f flow.Flow) error { return errorTo(f, 4444) }
		s := newStacked(t, t.TempDir()+"/", w, false)
		web, dns := udpFlow(t, "web", "udp dport 80", 0), udpFlow(t, "dns", "udp dport 53", 0)
		web.Backend, dns.Backend = flow.RDMA, flow.XDP
		if _, err := s.e.AddFlows(t.Context(), web, dns); err != nil {
			t.Fatal(err)
		}
		w.under.loseOne()
		s.showSources()
		web2, dns2 := web, dns
		web2.Match, dns2.Match = match(t, "udp dport 4444"), match(t, "udp dport 54")
		if _, err := s.e.SetFlows(t.Context(), []flow.Flow{web2, dns2}, dataplane.SetOptions{}); !errors.Is(err, dataplane.ErrUnplaced) {
			t.Fatalf("the call returned %v", err)
		}
		was := s.e.flows["dns"].past
		end(w.under)
		s.showSources()
		if n := s.e.flows["dns"].past.Discontinuities; n != was.Discontinuities+1 {
			t.Errorf("%s: %d discontinuities, and %d before", name, n, was.Discontinuities)
		}
		s.close(t)
	}
}

// XDP cannot remove its rules of flows after hardware has removed them: the flows stay, with all packets that hardware
// counted, wherever they are counted afterwards.
func TestARemovalThatFailsHalfwayKeepsTheTotals(t *testing.T) {
	for _, c := range []struct {
		name         string
		backend      flow.Backend
		audit        bool
		busy, refuse error
		by           string // the backend that counts the flows afterwards
	}{
		{name: "back to hardware", by: "rdma"},
		{name: "back to hardware with audit", audit: true, by: "rdma"},
		{name: "for hardware alone", backend: flow.RDMA, by: "rdma"},
		{name: "XDP takes no hook", busy: errors.New("busy"), by: "rdma"},
		{name: "hardware has no room", refuse: errors.New("no memory"), by: "xdp"},
		{name: "neither has", busy: errors.New("busy"), refuse: errors.New("no memory")},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &world{over: newFakeHardware(true), under: newFakeSoftware()}
			s := newStacked(t, t.TempDir()+"/", w, c.audit)
			defer s.e.Close()
			flows := []flow.Flow{udpFlow(t, "web", "udp dport 80", 0), udpFlow(t, "ssh", "udp dport 22", 0)}
			for i := range flows {
				flows[i].Backend = c.backend
			}
			if _, err := s.e.AddFlows(t.Context(), flows...); err != nil {
				t.Fatal(err)
			}
			send := func() {
				for range 10 {
					w.send(packetTo(80))
					w.send(packetTo(22))
				}
			}
			send()
			w.under.stuck, w.under.busy = errors.New("no permission"), c.busy
			w.over.refuse = func(flow.Flow) error { return c.refuse }
			if err := s.e.RemoveFlows(t.Context(), "web", "ssh"); !errors.Is(err, w.under.stuck) {
				t.Fatalf("the call returned %v", err)
			}
			want := uint64(10)
			check := func(when, by string) {
				t.Helper()
				for _, name := range []string{"web", "ssh"} {
					if got := s.total(t, name); got.Packets != want || got.Bytes != want*60 || s.source(name) != by {
						t.Errorf("%s: %s by %q: %+v, want %d packets by %q", when, name, s.source(name), got, want, by)
					}
					if n := s.e.flows[name].past.Discontinuities; !c.audit && by != "" && n == 0 {
						t.Errorf("%s: %s: no discontinuity is declared", when, name)
					}
				}
			}
			check("after the removal", c.by)
			w.under.busy = nil
			w.over.refuse = nil
			s.refresh(t)
			send()
			want += 10
			by := s.source("web")
			if by == "" {
				t.Fatal("nothing counts web")
			}
			check("later", by)
			w.under.stuck = nil
			if err := s.e.RemoveFlows(t.Context(), "web", "ssh"); err != nil || len(w.over.flows)+len(w.under.flows) > 0 {
				t.Errorf("the second removal: %v; %v and %v are left", err, w.over.flows, w.under.flows)
			}
		})
	}
}

// A call adds a flow that wins packets of another one, or gives a flow other packets, and is refused then. Packets that
// passed meanwhile are missing: their flows declare it, and no other flow does.
func TestRefusedCallDeclaresThePacketsThatItsFlowsCounted(t *testing.T) {
	all, ssh := udpFlow(t, "all", "udp dport 53-69", 5), udpFlow(t, "ssh", "udp dport 22", 5)
	dns, refused := udpFlow(t, "dns", "udp dport 53", 1), udpFlow(t, "refused", "udp dport 4444", 1)
	web := udpFlow(t, "web", "udp dport 80", 5)
	all.Backend, ssh.Backend, dns.Backend, web.Backend, refused.Backend = flow.XDP, flow.XDP, flow.XDP, flow.RDMA, flow.RDMA
	moved, changed := all, web
	moved.Match, changed.Match = match(t, "udp dport 100-199"), refused.Match
	for name, set := range map[string][]flow.Flow{
		"a flow that wins":              {all, ssh, web, dns, refused},
		"a flow that wins no packet":    {all, ssh, web, udpFlow(t, "dns", "udp dport 53", 9), refused},
		"a flow that has other packets": {moved, ssh, changed},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{over: newFakeHardware(true), under: newFakeSoftware()}
			s := newStacked(t, t.TempDir()+"/", w, false)
			defer s.e.Close()
			if _, err := s.e.AddFlows(t.Context(), all, ssh, web); err != nil {
				t.Fatal(err)
			}
			sent := uint64(0)
			send := func() {
				w.send(packetTo(53))
				w.send(packetTo(22))
				sent++
			}
			send()
			w.over.refuse = func(f flow.Flow) error {
				send()
				return errorTo(f, 4444)
			}
			if _, err := s.e.SetFlows(t.Context(), set, dataplane.SetOptions{}); !errors.Is(err, dataplane.ErrUnplaced) {
				t.Fatalf("the call returned %v", err)
			}
			send()
			for _, name := range []string{"all", "ssh"} {
				got, declared := s.total(t, name).Packets, s.e.flows[name].past.Discontinuities
				t.Logf("%s: %d packets of %d, %d discontinuities", name, got, sent, declared)
				if missing := sent - got; missing > 0 && declared != 1 || missing == 0 && declared != 0 {
					t.Errorf("%s: %d packets are missing, %d discontinuities", name, missing, declared)
				}
			}
		})
	}
}
