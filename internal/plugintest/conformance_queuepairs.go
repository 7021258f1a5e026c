package plugintest

import (
	"context"
	"net/netip"
	"slices"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
)

// testNoQueuePairs checks an instance without queue pairs: the list is empty, and every name is unknown.
func testNoQueuePairs(t *testing.T, s *suite) {
	pairs, err := s.QueuePairs().List(s.ctx)
	if err != nil || len(pairs) != 0 {
		t.Errorf("%d queue pairs, error %v", len(pairs), err)
	}
	for _, name := range []string{"absent", "", "a\xff"} {
		s.wantErr("connecting a queue pair that there is not", s.QueuePairs().Connect(s.ctx, name, dataplane.QueuePairAddress{}), dataplane.ErrNotFound)
		_, err = s.QueuePairs().Post(s.ctx, name, dataplane.Send, 1)
		s.wantErr("posting to a queue pair that there is not", err, dataplane.ErrNotFound)
	}
}

// QueuePairConformance tests the contract of dataplane.QueuePairs. open must return a new instance with the given queue
// pairs; the suite closes it. device must support reliable connections to itself over its GID gidIndex.
func QueuePairConformance(t *testing.T, device string, gidIndex int, open func([]dataplane.QueuePair) dataplane.Service) {
	t.Helper()
	for _, test := range []struct {
		name string
		run  func(*testing.T, *suite)
	}{
		{"described", testQueuePairs},
		{"connected at run time", testConnect},
		{"posted", testPost},
		{"in error", testQueuePairError},
		{"refused", testQueuePairRefused},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			s := &suite{t: t, ctx: ctx, Service: open([]dataplane.QueuePair{
				{Name: "near", Device: device, GIDIndex: gidIndex, Connect: "far", Counters: []dataplane.CompletionCounter{
					{Name: "near-sent", Operations: []dataplane.Operation{dataplane.Send}},
					{Name: "near-rdma", Operations: []dataplane.Operation{dataplane.RDMAWrite, dataplane.RDMARead}},
				}},
				{Name: "far", Device: device, GIDIndex: gidIndex, Type: dataplane.RC, Counters: []dataplane.CompletionCounter{
					{Name: "far-received", Operations: []dataplane.Operation{dataplane.Recv}},
				}},
				{Name: "a-third", Device: device, GIDIndex: gidIndex},
				{Name: "a-fourth", Device: device, GIDIndex: gidIndex},
			})}
			defer func() {
				if err := s.Close(); err != nil {
					t.Errorf("closing: %v", err)
				}
			}()
			test.run(t, s)
		})
	}
}

func (s *suite) queuePair(name string) dataplane.QueuePairState {
	s.t.Helper()
	pairs, err := s.QueuePairs().List(s.ctx)
	if err != nil {
		s.t.Fatalf("listing the queue pairs: %v", err)
	}
	i := slices.IndexFunc(pairs, func(q dataplane.QueuePairState) bool { return q.Name == name })
	if i < 0 {
		s.t.Fatalf("there is no queue pair %q among %+v", name, pairs)
	}
	return pairs[i]
}

func (s *suite) post(name string, op dataplane.Operation, count int) dataplane.Posted {
	s.t.Helper()
	posted, err := s.QueuePairs().Post(s.ctx, name, op, count)
	if err != nil {
		s.t.Fatalf("posting %d %s to %s: %v", count, op, name, err)
	}
	return posted
}

func testQueuePairs(t *testing.T, s *suite) {
	pairs, err := s.QueuePairs().List(s.ctx)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	numbers := map[uint32]bool{}
	handles := map[dataplane.Handle]bool{}
	counters := 0
	for _, q := range pairs {
		names = append(names, q.Name)
		numbers[q.Local.QPN] = true
		if q.Type != dataplane.RC || q.Device == "" || q.Port != 1 || q.Outstanding != 0 {
			t.Errorf("%s is described as %+v", q.Name, q)
		}
		if err := q.Local.Validate(); err != nil {
			t.Errorf("%s has no address to tell: %v", q.Name, err)
		}
		for _, k := range q.Counters {
			counters++
			handles[k.Counter] = true
			if q.Source.Backend == "" {
				t.Errorf("nothing counts %s", k.Name)
			}
		}
	}
	if want := []string{"a-fourth", "a-third", "far", "near"}; !slices.Equal(names, want) {
		t.Errorf("queue pairs are %q, want %q", names, want)
	}
	if len(numbers) != len(pairs) || counters != 3 || len(handles) != counters {
		t.Errorf("%d numbers of %d queue pairs, %d handles of %d counters", len(numbers), len(pairs), len(handles), counters)
	}
	near, far := s.queuePair("near"), s.queuePair("far")
	if near.State != "RTS" || far.State != "RTS" || near.Peer.QPN != far.Local.QPN || far.Peer.QPN != near.Local.QPN {
		t.Errorf("near and far are not connected: %+v, %+v", near, far)
	}
	if len(near.Counters) != 2 || near.Counters[1].Name != "near-rdma" || !slices.Equal(near.Counters[1].Operations, []dataplane.Operation{dataplane.RDMAWrite, dataplane.RDMARead}) {
		t.Errorf("the counters came back as %+v", near.Counters)
	}
	if third := s.queuePair("a-third"); third.State == "RTS" || third.Peer != (dataplane.QueuePairAddress{}) {
		t.Errorf("no call connects %+v, and it is connected", third)
	}
}

func testConnect(t *testing.T, s *suite) {
	third, fourth := s.queuePair("a-third").Local, s.queuePair("a-fourth").Local
	_, err := s.QueuePairs().Post(s.ctx, "a-third", dataplane.Send, 1)
	s.wantErr("posting before it is connected", err, dataplane.ErrNotConnected)
	s.wantErr("connecting as configured, where nothing is", s.QueuePairs().Connect(s.ctx, "a-third", dataplane.QueuePairAddress{}), dataplane.ErrInvalid)
	for name, peer := range map[string]dataplane.QueuePairAddress{"a-third": fourth, "a-fourth": third} {
		if err := s.QueuePairs().Connect(s.ctx, name, peer); err != nil {
			t.Fatalf("connecting %s: %v", name, err)
		}
		if q := s.queuePair(name); q.State != "RTS" || q.Peer != peer {
			t.Errorf("%s is connected as %+v, want peer %v", name, q, peer)
		}
	}
	if got := s.post("a-third", dataplane.Send, 10); got != (dataplane.Posted{Completed: 10}) {
		t.Errorf("10 were sent as %+v", got)
	}
	// Reconnect to the configured peer while connected.
	for _, name := range []string{"near", "far"} {
		if err := s.QueuePairs().Connect(s.ctx, name, dataplane.QueuePairAddress{}); err != nil {
			t.Errorf("connecting %s again: %v", name, err)
		}
	}
	if got := s.post("near", dataplane.Send, 10); got != (dataplane.Posted{Completed: 10}) {
		t.Errorf("after connecting again, 10 were sent as %+v", got)
	}
}

func testPost(t *testing.T, s *suite) {
	for _, op := range []dataplane.Operation{dataplane.Send, dataplane.RDMAWrite, dataplane.RDMARead} {
		const n = 300 // more than SendDepth
		if got := s.post("near", op, n); got != (dataplane.Posted{Completed: n}) {
			t.Errorf("%d of %s ended as %+v", n, op, got)
		}
		if got := s.post("far", op, 1); got != (dataplane.Posted{Completed: 1}) {
			t.Errorf("the other way, %s ended as %+v", op, got)
		}
	}
	if q := s.queuePair("near"); q.Outstanding != 0 || q.State != "RTS" {
		t.Errorf("after all completed: %+v", q)
	}
}

// testQueuePairError writes with a wrong key, which the peer rejects. That brings the queue pair to ERR, and connecting it to
// the configured peer repairs it.
func testQueuePairError(t *testing.T, s *suite) {
	near := s.queuePair("near")
	wrong := near.Peer
	wrong.RKey ^= 0xff00
	if err := s.QueuePairs().Connect(s.ctx, "near", wrong); err != nil {
		t.Fatal(err)
	}
	if err := s.QueuePairs().Connect(s.ctx, "far", near.Local); err != nil {
		t.Fatal(err)
	}
	if got := s.post("near", dataplane.RDMAWrite, 5); got != (dataplane.Posted{Errors: 5}) {
		t.Errorf("5 written with a wrong key ended as %+v", got)
	}
	if q := s.queuePair("near"); q.State != "ERR" {
		t.Errorf("in error: %+v", q)
	}
	_, err := s.QueuePairs().Post(s.ctx, "near", dataplane.Send, 1)
	s.wantErr("posting in error", err, dataplane.ErrNotConnected)
	if err := s.QueuePairs().Connect(s.ctx, "near", dataplane.QueuePairAddress{}); err != nil {
		t.Fatalf("mending: %v", err)
	}
	if got := s.post("near", dataplane.RDMAWrite, 5); got != (dataplane.Posted{Completed: 5}) {
		t.Errorf("mended, 5 were written as %+v", got)
	}
}

func testQueuePairRefused(t *testing.T, s *suite) {
	local := s.queuePair("far").Local
	for what, peer := range map[string]dataplane.QueuePairAddress{
		"no queue pair number": {GID: local.GID, LID: local.LID}, "nowhere to go": {QPN: local.QPN},
		"a group": {GID: netip.MustParseAddr("ff0e::1"), QPN: 17}, "a packet number": {GID: local.GID, LID: local.LID, QPN: 17, PSN: 1 << 24},
	} {
		s.wantErr("connecting to "+what, s.QueuePairs().Connect(s.ctx, "a-third", peer), dataplane.ErrInvalid)
	}
	for _, c := range []struct {
		op    dataplane.Operation
		count int
	}{{dataplane.Recv, 1}, {dataplane.RemoteRDMAWrite, 1}, {dataplane.RemoteRDMARead, 1}, {"", 1}, {"s\xff", 1}, {dataplane.Send, 0}, {dataplane.Send, -1}} {
		_, err := s.QueuePairs().Post(s.ctx, "near", c.op, c.count)
		s.wantErr("posting an invalid request", err, dataplane.ErrInvalid)
	}
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	_, err := s.QueuePairs().Post(ctx, "near", dataplane.Send, 1)
	s.wantErr("posting with a cancelled context", err, context.Canceled)
	s.wantErr("connecting with a cancelled context", s.QueuePairs().Connect(ctx, "a-third", local), context.Canceled)
	if got := s.post("near", dataplane.Send, 1); got != (dataplane.Posted{Completed: 1}) {
		t.Errorf("after the refusals, one was sent as %+v", got)
	}
}
