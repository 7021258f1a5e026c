package lab

import (
	"errors"
	"fmt"
	"math/rand/v2"
)

// Stream is one kind of traffic: frames that are sent in turn, all accounted
// to one name.
type Stream struct {
	Name   string
	Frames [][]byte
	// Weight is the stream's share of the load; 0 means 1.
	Weight int
}

// Tally holds the packets and bytes of one stream, as they were sent or counted.
type Tally struct{ Packets, Bytes uint64 }

// A schedule holds at least minSchedule frames, so that streams of unequal
// weight mix, and at most maxSchedule, so that it stays in the cache.
const (
	minSchedule = 512
	maxSchedule = 1 << 16
)

// slot is one frame of a schedule and the stream that it belongs to.
type slot struct {
	stream int
	frame  []byte
}

// schedule lays the streams out in the order in which they are sent, over and
// over: each by its weight, each frame of a stream as often as any other, mixed
// by seed.
func schedule(streams []Stream, seed uint64) ([]slot, error) {
	if len(streams) == 0 {
		return nil, errors.New("no streams to send")
	}
	var round []slot
	turns := make([]int, len(streams))
	for complete := false; !complete; {
		complete = true
		for i, s := range streams {
			if len(s.Frames) == 0 {
				return nil, fmt.Errorf("stream %q has no frames", s.Name)
			}
			for range max(s.Weight, 1) {
				round = append(round, slot{i, s.Frames[turns[i]%len(s.Frames)]})
				turns[i]++
			}
			complete = complete && turns[i] >= len(s.Frames)
		}
		complete = complete && len(round) >= minSchedule
		if len(round) > maxSchedule {
			return nil, fmt.Errorf("a schedule of more than %d frames: use fewer frames or smaller weights", maxSchedule)
		}
	}
	r := rand.New(rand.NewPCG(seed, 0))
	r.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
	return round, nil
}
