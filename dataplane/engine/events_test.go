package engine

import (
	"testing"

	"github.com/flowtally/flowtally/dataplane"
)

// What the flows of a large device declare at once reaches a receiver that was busy elsewhere.
func TestAReceiverHasRoomForWhatADeviceSaysAtOnce(t *testing.T) {
	var b broadcaster
	ch := b.subscribe(t.Context())
	const flows = 2000
	for range 2 * flows { // it goes, and comes back
		b.publish(dataplane.Event{Kind: dataplane.SourceChanged, Uncounted: dataplane.Uncounted{Packets: 1}})
	}
	b.close()
	var declared uint64
	for ev := range ch {
		declared += ev.Uncounted.Packets
	}
	if declared != 2*flows {
		t.Errorf("%d packets were declared lost, and %d told", 2*flows, declared)
	}
}
