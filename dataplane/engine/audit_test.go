package engine

import (
	"strings"
	"testing"
)

// returned is an instance with audit whose flow went back to hardware while four packets passed, and that is
// never quiet when conditions are looked at.
func returned(t *testing.T) (s *stacked, send func(int)) {
	t.Helper()
	w := &world{over: newFakeHardware(true), under: newFakeSoftware()}
	s = newStacked(t, t.TempDir()+"/", w, true)
	t.Cleanup(func() { s.e.Close() })
	send = func(n int) {
		for range n {
			w.send(packetTo(53))
		}
	}
	if _, err := s.e.AddFlows(t.Context(), udpFlow(t, "dns", "udp dport 53", 5)); err != nil {
		t.Fatal(err)
	}
	send(10)
	w.over.lose()
	s.refresh(t)
	w.over.down, w.over.during = nil, func() { send(4) }
	s.refresh(t)
	w.over.during = nil
	for range 3 {
		send(1)
		s.look()
	}
	if got := s.total(t, "dns"); got.Packets != 13 || s.source("dns") != "rdma" {
		t.Fatalf("counted %d by %s, want 13 (4 passed between the two) by rdma", got.Packets, s.source("dns"))
	}
	s.moves()
	return s, send
}

// A pause that is shorter than the time between two looks at the conditions is enough: packets that passed while
// the flow went back to hardware are added in it, once.
func TestAuditCatchesUpInAShortPause(t *testing.T) {
	s, send := returned(t)
	send(1)
	if !s.e.auditor.alignIdle() {
		t.Fatal("nothing lacks, it says")
	}
	if s.e.auditor.alignIdle() {
		t.Error("something lacks after a pause")
	}
	send(1)
	s.look()
	if got := s.total(t, "dns"); got.Packets != 19 {
		t.Errorf("counted %d, want 19", got.Packets)
	}
	if moves := s.moves(); len(moves) != 1 || !strings.Contains(moves[0].Text, "4 packets") {
		t.Errorf("moves %+v, want one that says what was added", moves)
	}
	if s.e.auditor.alignIdle(); len(s.e.mover.stack.toAlign) != 0 {
		t.Errorf("%d flows are behind", len(s.e.mover.stack.toAlign))
	}
}

// While packets pass, the two counters are not compared: neither knows at which of them the other is.
func TestAuditAddsNothingUnderTraffic(t *testing.T) {
	s, send := returned(t)
	for range 5 {
		send(1)
		if !s.e.auditor.alignIdle() {
			t.Fatal("the total was taken for complete under traffic")
		}
	}
	if got := s.total(t, "dns"); got.Packets != 18 {
		t.Errorf("counted %d, want 18: 4 of 22 lack", got.Packets)
	}
}

// An instance that ends under traffic ends with the total that XDP counted.
func TestAuditSettlesAtTheEnd(t *testing.T) {
	s, send := returned(t)
	s.e.ctl.Lock()
	s.e.auditor.alignAtEnd()
	s.e.ctl.Unlock()
	if got := s.total(t, "dns"); got.Packets != 17 {
		t.Errorf("counted %d at the end, want 17", got.Packets)
	}
	send(1)
	if got := s.total(t, "dns"); got.Packets != 18 {
		t.Errorf("counted %d, want 18", got.Packets)
	}
}
