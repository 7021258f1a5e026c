package lab

import (
	"testing"
	"time"
)

func TestScheduleSharesTheSlotsByWeight(t *testing.T) {
	a := [][]byte{{1}, {2}, {3}}
	b := [][]byte{{4}}
	slots, err := schedule([]Stream{{Name: "a", Frames: a}, {Name: "b", Frames: b, Weight: 4}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	var byStream [2]int
	var byFrame [5]int
	for _, s := range slots {
		byStream[s.stream]++
		byFrame[s.frame[0]]++
	}
	if byStream[1] != 4*byStream[0] || len(slots) < minSchedule {
		t.Errorf("shares %v of %d, want 1:4", byStream, len(slots))
	}
	if d := byFrame[1] - byFrame[3]; d < 0 || d > 1 {
		t.Errorf("frames of one stream: %v, want about as many of each", byFrame[1:4])
	}
	for _, bad := range [][]Stream{nil, {{Name: "empty"}}, {{Name: "vast", Frames: a, Weight: maxSchedule + 1}}} {
		if _, err := schedule(bad, 1); err == nil {
			t.Errorf("schedule of %v was accepted", bad)
		}
	}
}

func TestSenderNeverExceedsItsRate(t *testing.T) {
	const rate, packets, burst = 20_000, 10_000, 64
	w := wire(t, WireOptions{})
	s, err := w.Far.NewSender(testStreams(), SenderOptions{Rate: rate})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	start := time.Now()
	if err := s.Run(t.Context(), packets); err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	// Never more than the rate; how much less depends on other work on the machine.
	if least := time.Second * (packets - burst) / rate; took < least || sum(s.Sent()).Packets != packets {
		t.Errorf("%+v in %v, want %d frames in %v at least", s.Sent(), took, packets, least)
	}
}

// Sending allocates nothing, whatever is accounted.
func TestSendAllocatesNothing(t *testing.T) {
	w := wire(t, WireOptions{})
	s, err := w.Far.NewSender(testStreams(), SenderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if n := testing.AllocsPerRun(100, func() { s.send(32) }); n != 0 {
		t.Errorf("%g allocations per batch, want none", n)
	}
}
