package event

import (
	"testing"

	"github.com/flowtally/flowtally/dataplane"
)

// The events of all flows of a large device reach a receiver that was busy elsewhere.
func TestAReceiverHasRoomForWhatADeviceSaysAtOnce(t *testing.T) {
	var b Broadcaster
	ch := b.Subscribe(t.Context())
	const flows = 2000
	for range 2 * flows { // it goes, and comes back
		b.Publish(dataplane.Event{Kind: dataplane.SourceChanged, Uncounted: dataplane.Uncounted{Packets: 1}})
	}
	b.Close()
	var declared uint64
	for ev := range ch {
		declared += ev.Uncounted.Packets
	}
	if declared != 2*flows {
		t.Errorf("%d packets were declared lost, and %d told", 2*flows, declared)
	}
}

// A receiver learns how many events it has missed, also where it misses events that carried such a number.
func TestAReceiverIsToldWhatItMissed(t *testing.T) {
	var b Broadcaster
	ch := b.Subscribe(t.Context())
	sent, seen := uint64(0), uint64(0)
	for round := range 3 {
		for range cap(ch) + 100 + round {
			sent++
			b.Publish(dataplane.Event{Kind: dataplane.SourceChanged})
		}
		for range cap(ch) / 2 { // then it misses events that told of missed ones
			seen += 1 + (<-ch).Lost
		}
	}
	b.Close()
	for ev := range ch {
		seen += 1 + ev.Lost
	}
	if seen != sent {
		t.Errorf("%d events, of which %d arrived or were said to be lost", sent, seen)
	}
}

// A receiver that comes after the end of an instance gets a channel that is closed.
func TestAReceiverAfterTheEnd(t *testing.T) {
	var b Broadcaster
	b.Close()
	if _, open := <-b.Subscribe(t.Context()); open {
		t.Error("an event came")
	}
}

func TestALaggingReceiverLearnsHowManyItLost(t *testing.T) {
	var b Broadcaster
	ch := b.Subscribe(t.Context())
	const sent = 3 * buffer
	for range sent {
		b.Send(dataplane.FlowAdded, "f", "")
	}
	b.Close()
	var got, lost uint64
	for ev := range ch {
		got++
		lost += ev.Lost
	}
	if got+lost != sent || got != buffer {
		t.Errorf("received %d, lost %d of %d", got, lost, sent)
	}
}
