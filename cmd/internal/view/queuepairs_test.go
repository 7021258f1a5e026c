package view

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
)

func TestQueuePairsPrintAsInTheGoldenFiles(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	near := dataplane.QueuePairAddress{GID: netip.MustParseAddr("fe80::5054:ff:fe12:3456"), QPN: 17, PSN: 0x1234, Addr: 0x7f2a40000000, RKey: 0x1f2}
	pairs := []dataplane.QueuePairState{
		{
			Name: "gone", Device: "rdmap0s6", Port: 1, Type: dataplane.UD,
			Counters: []dataplane.CountedOperations{{CompletionCounter: dataplane.CompletionCounter{Name: "gone-sent", Operations: []dataplane.Operation{dataplane.Send}}}},
		},
		{
			Name: "near", Device: "mlx5_0", Port: 1, Type: dataplane.RC, State: "ERR", Local: near,
			Peer:   dataplane.QueuePairAddress{LID: 3, QPN: 18, Addr: 0x7f2a50000000, RKey: 0x1f3},
			Source: dataplane.Source{Backend: "rdma", Devices: []dataplane.Device{{Backend: "rdma", Name: "mlx5_0", Mode: "cq_ring"}}},
			Counters: []dataplane.CountedOperations{
				{CompletionCounter: dataplane.CompletionCounter{Name: "near-out", Operations: []dataplane.Operation{dataplane.Send, dataplane.RDMAWrite}}},
				{CompletionCounter: dataplane.CompletionCounter{Name: "near-in", Operations: []dataplane.Operation{dataplane.Recv}}},
			},
			Rejected: []dataplane.Rejection{
				{Backend: "comp_cntr", Reason: "completion counters on mlx5_0: not supported: libibverbs has no ibv_create_comp_cntr"},
				{Backend: "collapsed_cq", Reason: "a CQ of the verbs cannot be collapsed"},
			},
			Outstanding: 12,
		},
	}
	pairs = append(pairs, dataplane.QueuePairState{
		Name: "other", Device: "mlx5_0", Port: 2, Type: dataplane.RawPacket, State: "RTS", Source: dataplane.Source{Backend: "rdma", Devices: []dataplane.Device{{Backend: "rdma", Name: "mlx5_0", Mode: "cq_ring"}}},
		Counters: pairs[1].Counters[1:], Rejected: pairs[1].Rejected[1:],
	})
	pairs[0].Rejected = pairs[1].Rejected[1:]
	conditions := []dataplane.Condition{
		{Code: "interface-missing", Severity: dataplane.High, Object: "eth0", Text: "not about queue pairs", Since: now},
		{Code: "queue-pair-error", Severity: dataplane.High, Object: "near", Text: "in state ERR: rdma_write: remote access error",
			Fix: "see the peer, then: flowtally queue-pairs connect near", Since: now.Add(-90 * time.Second)},
		{Code: "words-abandoned", Severity: dataplane.Medium, Object: "old", Text: "the program that had its reserved words ended without giving them back",
			Fix: "start the program again, or: flowtally queue-pairs release old", Since: now.Add(-time.Second)},
	}
	words := []dataplane.ReservedWords{
		{Name: "app", State: dataplane.WordsTaken, Since: now.Add(-time.Minute)}, {Name: "old", State: dataplane.WordsAbandoned, Since: now.Add(-time.Second)},
	}
	for name, asJSON := range map[string]bool{"queue-pairs.txt": false, "queue-pairs.json": true} {
		var b bytes.Buffer
		if err := QueuePairs(&b, asJSON, pairs, words, OfQueuePairs(conditions), now); err != nil {
			t.Fatal(err)
		}
		compare(t, name, b.String())
	}
}
