package plugin

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/dataplane"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

// addresses are compared whole: they have no fields to look into.
var addresses = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

func drawAddress(t *rapid.T) dataplane.QueuePairAddress {
	a := dataplane.QueuePairAddress{
		LID: rapid.Uint16().Draw(t, "lid"), QPN: rapid.Uint32().Draw(t, "qpn"), PSN: rapid.Uint32().Draw(t, "psn"),
		QKey: rapid.Uint32().Draw(t, "qkey"), Addr: rapid.Uint64().Draw(t, "addr"), RKey: rapid.Uint32().Draw(t, "rkey"),
	}
	if rapid.Bool().Draw(t, "has a gid") {
		a.GID = netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "gid")))
	}
	return a
}

func drawCompletionCounter(t *rapid.T) dataplane.CompletionCounter {
	return dataplane.CompletionCounter{
		Name:       rapid.StringN(0, 5, 20).Draw(t, "counter"),
		Operations: rapid.SliceOfN(rapid.SampledFrom(dataplane.Operations()), 1, 3).Draw(t, "operations"),
	}
}

// drawQueuePair draws one that need not validate: the wire carries the fields as they are.
func drawQueuePair(t *rapid.T) dataplane.QueuePair {
	q := dataplane.QueuePair{
		Name: rapid.StringN(0, 5, 20).Draw(t, "pair"), Device: rapid.StringN(0, 5, 20).Draw(t, "device"), Port: rapid.Uint8().Draw(t, "port"),
		GIDIndex: rapid.Int().Draw(t, "gid index"),
		Type:     dataplane.QueuePairType(rapid.StringN(0, 5, 20).Draw(t, "type")), Source: dataplane.CompletionSource(rapid.StringN(0, 5, 20).Draw(t, "source")),
		SendDepth: rapid.Int().Draw(t, "send depth"), Receives: rapid.Int().Draw(t, "receives"), MessageSize: rapid.Int().Draw(t, "message size"),
		Connect: rapid.StringN(0, 5, 20).Draw(t, "connect"),
	}
	for range rapid.IntRange(0, 2).Draw(t, "counters") {
		q.Counters = append(q.Counters, drawCompletionCounter(t))
	}
	if rapid.Bool().Draw(t, "has a peer") {
		peer := drawAddress(t)
		q.Peer = &peer
	}
	return q
}

func TestQueuePairStatesCrossTheWireUnchanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := []dataplane.QueuePairState{{
			Name: rapid.StringN(0, 5, 20).Draw(t, "name"), Device: "rxe0", Type: dataplane.RC, Port: rapid.Uint8().Draw(t, "port"),
			State: rapid.SampledFrom([]string{"", "INIT", "RTS", "ERR"}).Draw(t, "state"), Local: drawAddress(t), Peer: drawAddress(t),
			Source:      dataplane.Source{Backend: "rdma", Devices: []dataplane.Device{{Backend: "rdma", Name: "rxe0", Mode: "poll_cq"}}},
			Rejected:    []dataplane.Rejection{{Backend: "comp_cntr", Reason: "no such verb"}},
			Outstanding: rapid.Int().Draw(t, "outstanding"),
		}, {}}
		for range rapid.IntRange(0, 2).Draw(t, "counters") {
			want[0].Counters = append(want[0].Counters, dataplane.CountedOperations{
				CompletionCounter: drawCompletionCounter(t),
				Counter:           dataplane.Handle{Index: rapid.Uint32().Draw(t, "index"), Generation: rapid.Uint32().Draw(t, "generation")},
			})
		}
		msg := overWire(t, &pluginv1.QueuePairsResponse{QueuePairs: queuePairStatesToProto(want)}, &pluginv1.QueuePairsResponse{})
		got, err := queuePairStatesFromProto(msg.QueuePairs)
		if diff := cmp.Diff(want, got, addresses); err != nil || diff != "" {
			t.Fatalf("queue pairs changed: %v\n%s", err, diff)
		}
	})
}

// A value out of range is refused, and not truncated.
func TestQueuePairNumbersOutOfRangeAreErrorsAndNotTruncated(t *testing.T) {
	for name, p := range map[string]*pluginv1.QueuePair{
		"nothing": nil, "port": {Name: "a", Port: 256},
		"lid": {Name: "a", Peer: &pluginv1.QueuePairAddress{Lid: 1 << 16}}, "gid": {Name: "a", Peer: &pluginv1.QueuePairAddress{Gid: "fe80"}},
	} {
		c, err := configFromProto(&pluginv1.Config{QueuePairs: []*pluginv1.QueuePair{p}})
		if !errors.Is(err, dataplane.ErrInvalid) {
			t.Errorf("%s: %+v, %v; want ErrInvalid", name, c, err)
		}
	}
	for name, p := range map[string]*pluginv1.QueuePairState{
		"port": {Port: 256}, "lid": {Local: &pluginv1.QueuePairAddress{Lid: 1 << 16}}, "gid": {Peer: &pluginv1.QueuePairAddress{Gid: "x"}},
	} {
		if got, err := queuePairStatesFromProto([]*pluginv1.QueuePairState{p}); !errors.Is(err, dataplane.ErrInvalid) {
			t.Errorf("%s: %+v, %v; want ErrInvalid", name, got, err)
		}
	}
	if _, err := configToProto(dataplane.Config{QueuePairs: []dataplane.QueuePair{{Name: "a", Device: "\xff"}}}); !errors.Is(err, dataplane.ErrInvalid) {
		t.Errorf("a device that protobuf cannot carry: %v", err)
	}
}
