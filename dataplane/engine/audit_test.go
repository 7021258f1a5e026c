package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab"
)

// returned is an instance with audit whose flow went back to hardware while four packets passed, and that is
// never quiet when conditions are looked at.
func returned(t *testing.T) (s *stacked, send func(int)) { return returnedWith(t, "l2") }

// returnedWith is returned by a device with this byte basis.
func returnedWith(t *testing.T, basis string) (s *stacked, send func(int)) {
	t.Helper()
	w := &world{over: newFakeHardware(true), under: newFakeSoftware()}
	w.over.basis = basis
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
	lab.Eventually(t, "a pause", func() bool { return !s.e.auditor.alignIdle() })
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

// A device whose byte basis nobody has measured is no worse: the packets are added, and a difference of bytes is no fault.
func TestAuditAddsPacketsWithoutBytesOfAnotherBasis(t *testing.T) {
	for _, atEnd := range []bool{false, true} {
		t.Run(fmt.Sprint("at the end ", atEnd), func(t *testing.T) {
			s, _ := returnedWith(t, "unknown")
			before := s.total(t, "dns")
			if atEnd {
				s.e.ctl.Lock()
				s.e.auditor.alignAtEnd()
				s.e.ctl.Unlock()
			} else {
				lab.Eventually(t, "a pause", func() bool { return !s.e.auditor.alignIdle() })
			}

			if got := s.total(t, "dns"); got.Packets != before.Packets+4 || got.Bytes != before.Bytes {
				t.Errorf("counted %+v, want 4 packets more than %+v and the same bytes", got, before)
			}
			if differs := s.e.flows["dns"].differs; differs != "" {
				t.Error(differs)
			}
			if moves := s.moves(); !atEnd && (len(moves) != 1 || !strings.Contains(moves[0].Text, "4 packets") || !strings.Contains(moves[0].Text, "without bytes")) {
				t.Errorf("moves %+v, want one that says what was added", moves)
			}
		})
	}
}

// XDP has the rules of a flow before hardware counts it. Packets that pass in between count in hardware for the flow behind, whose
// shadow lacks them. That is no fault of hardware, and in the next pause the shadow follows the total again.
func TestAShadowThatLacksPacketsOfAChangeFollowsAgainInAPause(t *testing.T) {
	for _, paused := range []bool{true, false} {
		t.Run(fmt.Sprint("paused ", paused), func(t *testing.T) {
			w := &world{over: newFakeHardware(true), under: newFakeSoftware()}
			s := newStacked(t, t.TempDir()+"/", w, true)
			t.Cleanup(func() { s.e.Close() })
			send := func(n int) {
				for range n {
					w.send(packetTo(53))
				}
			}
			if _, err := s.e.AddFlows(t.Context(), udpFlow(t, "all", "udp", 5)); err != nil {
				t.Fatal(err)
			}
			send(10)
			w.over.during = func() { send(4) }
			if _, err := s.e.AddFlows(t.Context(), udpFlow(t, "dns", "udp dport 53", 1)); err != nil {
				t.Fatal(err)
			}
			w.over.during = nil
			send(1)

			if s.e.flows["all"].follows {
				t.Fatal("the shadow of all lacks four packets, and follows")
			}
			if paused {
				lab.Eventually(t, "a pause", func() bool { return !s.e.auditor.alignIdle() })
				if !s.e.flows["all"].follows {
					t.Error("the shadow does not follow after a pause")
				}
			}
			if paused {
				s.look()
				s.look()
			}
			if differs := s.e.flows["all"].differs; differs != "" {
				t.Error(differs)
			}

			w.over.lose()
			s.refresh(t)
			all, dns := s.total(t, "all"), s.total(t, "dns")
			if all.Packets+dns.Packets != 15 || s.source("all") != "xdp" {
				t.Errorf("%d and %d packets, the former by %s; 15 were sent", all.Packets, dns.Packets, s.source("all"))
			}
			if n := s.e.flows["all"].past.Discontinuities; (n == 0) != paused {
				t.Errorf("%d discontinuities, and the pause was %t", n, paused)
			}
		})
	}
}

// The total of dns lacks packets that its shadow has seen. When the shadow stops following, nobody can add them any more.
func TestPacketsThatCannotBeAddedAnyMoreAreDeclared(t *testing.T) {
	s, send := returned(t)
	dns := s.e.flows["dns"]
	before := dns.past.Discontinuities
	s.over.during = func() { send(1) }
	if _, err := s.e.AddFlows(t.Context(), udpFlow(t, "all", "udp", 1)); err != nil {
		t.Fatal(err)
	}
	s.over.during = nil

	if dns.follows || dns.past.Discontinuities != before+1 {
		t.Errorf("follows %t, %d discontinuities, want one more than %d", dns.follows, dns.past.Discontinuities, before)
	}
	if moves := s.moves(); len(moves) != 1 || !moves[0].Uncounted.Unknown {
		t.Errorf("events %+v, want one that says what is unknown", moves)
	}
}
