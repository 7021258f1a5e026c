package engine

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
)

// TestAnAddressThatThePortCannotReachLeavesTheConnection as it is.
func TestAnAddressThatThePortCannotReachLeavesTheConnection(t *testing.T) {
	s := newSoftNIC(t)
	e := s.startPairs(t, s.pairConfig(t, dataplane.Send))
	err := e.QueuePairs().Connect(t.Context(), "a", dataplane.QueuePairAddress{LID: 5, QPN: 17})
	if !errors.Is(err, dataplane.ErrInvalid) || !strings.Contains(err.Error(), "gid") {
		t.Errorf("connecting over Ethernet by LID: %v", err)
	}
	mustPost(t, e, "a", dataplane.Send, 3)
}

// The condition lasts until the queue pair is connected. A connection that fails before anything was
// changed leaves the connection that there is.
func TestAConnectionThatFailsHalfWayIsACondition(t *testing.T) {
	const made = 6 // ibv_modify_qp for a and b, to INIT, RTR and RTS
	for _, c := range []struct {
		name  string
		kind  dataplane.QueuePairType
		verb  string
		fault ibvtest.Fault // of the verb, or of its call to the kernel
		state string        // that it is left in; "": it is connected as before
	}{
		{"ERR is refused", dataplane.RC, "ibv_modify_qp", ibvtest.Fault{Verb: "MODIFY_QP", From: made + 1, To: made + 1}, ""},
		{"RESET is refused", dataplane.RC, "ibv_modify_qp", ibvtest.Fault{Verb: "MODIFY_QP", From: made + 2, To: made + 2}, "ERR"},
		{"INIT is refused", dataplane.RC, "ibv_modify_qp", ibvtest.Fault{Verb: "MODIFY_QP", From: made + 3, To: made + 3}, "RESET"},
		{"RTR is refused", dataplane.RC, "ibv_modify_qp", ibvtest.Fault{Verb: "MODIFY_QP", From: made + 4, To: made + 4}, "INIT"},
		{"RTS is refused", dataplane.RC, "ibv_modify_qp", ibvtest.Fault{Verb: "MODIFY_QP", From: made + 5, To: made + 5}, "RTR"},
		{"receives are refused", dataplane.RC, "ibv_post_recv", ibvtest.Fault{Verb: "ibv_post_recv", From: 9, To: 9}, "INIT"}, // a and b began with 64, 16 by a call
		{"no address handle", dataplane.UD, "ibv_create_ah", ibvtest.Fault{Verb: "CREATE_AH", From: 2, To: 2}, "RTS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := nicThatFails(t, c.fault.Verb)
			c.fault.Errno = "EPERM"
			s.Env.Fail = []ibvtest.Fault{c.fault}
			cfg := s.pairConfig(t, dataplane.Send)
			for i := range cfg.QueuePairs {
				cfg.QueuePairs[i].Type = c.kind
			}
			e := s.startPairs(t, cfg)
			before := stateOf(t, e, "a").Peer
			err := e.QueuePairs().Connect(t.Context(), "a", before)
			if !errors.Is(err, syscall.EPERM) || !strings.Contains(err.Error(), c.verb) {
				t.Fatalf("connecting: %v", err)
			}
			if c.state == "" {
				mustPost(t, e, "a", dataplane.Send, 3)
				return
			}
			if a := stateOf(t, e, "a"); a.State != c.state || a.Peer != (dataplane.QueuePairAddress{}) {
				t.Errorf("it is left as %+v, want state %s and no peer", a, c.state)
			}
			k := awaitCondition(t, e, "queue-pair-unconnected", "a", true)
			if !strings.Contains(k.Text, "in state "+c.state) || !strings.Contains(k.Text, c.verb) || !strings.Contains(k.Text, before.String()) {
				t.Errorf("the condition says %q", k.Text)
			}
			if _, err := e.QueuePairs().Post(t.Context(), "a", dataplane.Send, 1); !errors.Is(err, dataplane.ErrNotConnected) || !strings.Contains(err.Error(), c.verb) {
				t.Errorf("posting: %v", err)
			}
			lab.Step(t, k.Fix, "then: flowtally queue-pairs connect … [ADDRESS]")
			if err := e.QueuePairs().Connect(t.Context(), "a", dataplane.QueuePairAddress{}); err != nil {
				t.Fatal(err)
			}
			awaitCondition(t, e, "queue-pair-unconnected", "a", false)
			mustPost(t, e, "a", dataplane.Send, 3)
			if c.kind == dataplane.RC { // of datagrams, one knows the way
				mustPost(t, e, "b", dataplane.Send, 200) // into the receives of a
			}
		})
	}
}

// It leaves no second one behind.
func TestAnAddressHandleThatStaysGoesWithTheNextConnection(t *testing.T) {
	s := newSoftNIC(t)
	s.Env.Fail = []ibvtest.Fault{{Verb: "AH_DESTROY", Errno: "EBUSY", From: 1, To: 1}}
	cfg := s.pairConfig(t, dataplane.Send)
	for i := range cfg.QueuePairs {
		cfg.QueuePairs[i].Type = dataplane.UD
	}
	e := s.startPairs(t, cfg)
	before := stateOf(t, e, "a").Peer
	if err := e.QueuePairs().Connect(t.Context(), "a", before); !errors.Is(err, syscall.EBUSY) {
		t.Fatalf("connecting: %v, want what ibv_destroy_ah says", err)
	}
	if a := stateOf(t, e, "a"); a.Peer != (dataplane.QueuePairAddress{}) {
		t.Errorf("it is left with the peer %v, and an error", a.Peer)
	}
	awaitCondition(t, e, "queue-pair-unconnected", "a", true)
	if err := e.QueuePairs().Connect(t.Context(), "a", before); err != nil {
		t.Fatal(err)
	}
	awaitCondition(t, e, "queue-pair-unconnected", "a", false)
	mustPost(t, e, "a", dataplane.Send, 3)
	if err := e.Close(); err != nil {
		t.Errorf("closing: %v", err)
	}
}
