package shm

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// Check finds each kind of broken invariant, names the object, and finds
// nothing else.
func TestCheckFindsEachBrokenInvariant(t *testing.T) {
	for _, tt := range []struct {
		object string
		text   string
		harm   func(v *view)
	}{
		{"header", "generation is 0", func(v *view) { v.hdr.generation = 0 }},
		{"header", "state 9", func(v *view) { v.hdr.state = 9 }},
		{"header", "heartbeat period", func(v *view) { v.hdr.heartbeatPeriod = 0 }},
		{"header", "poll period", func(v *view) { v.hdr.pollPeriod = -1 }},
		{"header", "cool-down", func(v *view) { v.hdr.coolDown = -1 }},
		{"header", "is done, but only", func(v *view) { v.hdr.cycleDone = 7 }},
		{"header", "where no mirror comes", func(v *view) { v.hdr.cycleBegun = 1 << 63 }},
		{"header", "slots of segment 0 used", func(v *view) { v.hdr.table[0].high = 5000 }},
		{"header", "descriptor of segment 4", func(v *view) { v.hdr.table[4].kind = 1 }},
		{"header", "descriptor of segment 7", func(v *view) { v.hdr.table[7].high = 1 }},
		{"header", "are the most", func(v *view) { v.hdr.segments = 5000 }},
		{"file", "bytes are there", func(v *view) { v.hdr.segments, v.hdr.table[2].kind = 3, kindBlocks }},
		{"file", "is of kind 3", func(v *view) { v.hdr.segments, v.hdr.table[2].kind = 3, 3 }},
		{"header", "says 7 live", func(v *view) { v.hdr.countersUsed = 7 }},
		{"header", "says 7 live", func(v *view) { v.hdr.recordsUsed = 7 }},
		{"header", "is being written", func(v *view) { v.hdr.historyIntent += 2 }},
		{"header", "reserved byte", func(v *view) { v.maps[0].b[400] = 1 }},
		{"header", "reserved byte", func(v *view) { v.maps[0].b[hdrHistoryTail+8] = 1 }},
		{"header", "reserved byte", func(v *view) { v.maps[0].b[hdrTable-1] = 1 }},
		{"header", "reserved byte", func(v *view) { v.maps[0].b[headerSize-1] = 1 }},
		{"history", "reserved byte", func(v *view) { v.maps[1].b[4*historySize] = 1 }},
		{"segment 0", "reserved byte", func(v *view) { v.slot(0).s.m.b[segmentSize-1] = 1 }},
		{"entry 0", "name is empty", func(v *view) { v.slot(0).entry().name = [nameSize]byte{} }},
		{"entry 0", "not padded", func(v *view) { v.slot(0).entry().name[60] = 1 }},
		{"entry 0", "does not end with NUL", func(v *view) {
			v.slot(0).entry().kind = [kindSize]byte{0: 'a', 15: 'b'}
			fill(v.slot(0).entry().kind[:])
		}},
		{"entry 0", "not UTF-8", func(v *view) { v.slot(0).entry().text[0] = 0xff }},
		{"entry 0", "not key=value in order", func(v *view) { copy(v.slot(0).entry().labels[:], "b=\x00a=\x00") }},
		{"entry 0", "go on after their end", func(v *view) { v.slot(0).entry().labels[100] = 1 }},
		{"entry 0", "flags", func(v *view) { v.slot(0).entry().flags = 8 }},
		{"entry 0", "flags", func(v *view) { v.slot(0).entry().slots[v.slot(0).entry().seq&1].flags = 1 << 20 }},
		{"entry 0", "reserved byte", func(v *view) { v.slot(0).s.m.b[entSeq+8] = 1 }},
		{"entry 0", "was added in epoch", func(v *view) { v.slot(0).entry().born = 5 }},
		{"entry 0", "generation 0", func(v *view) { v.slot(0).entry().identity = identity(entLive, 0) }},
		{"entry 0", "state 7", func(v *view) {
			v.slot(0).entry().identity = identity(7, 1)
			v.hdr.countersUsed--
		}},
		{"entry 1", "entry 0 has the name", func(v *view) { v.slot(1).entry().name = v.slot(0).entry().name }},
		{"entry 0", "reserved byte", func(v *view) { wordsAt(v.slot(0).entry())[entSeq/8+1] = 1 }},
		{"entry 0", "names slot 3 of no map", func(v *view) { v.slot(0).entry().live = 2<<32 | 3 }},
		{"entry 0", "which holds fewer", func(v *view) { e := v.slot(0).entry(); e.live, e.liveMap = 2<<32|1<<21, 7<<32 }},
		{"entry 5", "reserved byte", func(v *view) { v.slot(5).entry().text[0] = 1 }},
		{"entry 70", "beyond the high-water mark", func(v *view) { v.slot(70).entry().identity = identity(entRetired, 1) }},
		{"block 0", "live bit true, entry in state 0", func(v *view) { v.now(0).live |= 1 << 9 }},
		{"block 0", "live bit false, entry in state 2", func(v *view) {
			v.now(0).live &^= 1 << 1
			v.now(0).values[1] = Value{}
		}},
		{"block 0", "belongs to no counter", func(v *view) { v.now(0).values[9] = Value{Packets: 1} }},
		{"block 0", "says sampled from", func(v *view) { v.now(0).oldest-- }},
		{"block 0", "says sampled from", func(v *view) { v.now(0).values[0].SampledAt = 5 }},
		{"block 0", "epoch 3", func(v *view) { v.now(0).epoch = 3 }},
		{"block 0", "published in cycle", func(v *view) { v.now(0).cycle = 99 }},
		{"block 0", "intent", func(v *view) { *v.slot(0).block().intent() += 3 }},
		{"block 0", "reserved words", func(v *view) { wordsAt(v.now(0))[6] = 1 }},
		{"block 0", "reserved byte", func(v *view) { wordsAt(&v.slot(0).s.blocks.seqs[0])[1] = 1 }},
		{"block 1", "was never published", func(v *view) { v.now(1).values[0].Packets = 1 }},
		{"block 1", "beyond the high-water mark", func(v *view) { *v.slot(64).block().seq(), *v.slot(64).block().intent() = 2, 2 }},
		{"record 4097", "was never used", func(v *view) { v.slot(4097).record().slots[0].Packets = 1 }},
		{"history record 3", "has number 9", func(v *view) { v.history[2].position = 9 }},
		{"history record 3", "is of counter", func(v *view) { v.history[2].index = 8192 }},
		{"history record 3", "is of cycle", func(v *view) { v.history[2].cycle = 1000 }},
	} {
		t.Run(tt.object+" "+tt.text, func(t *testing.T) {
			w, _ := heapMirror(t, 128, 2, 4, Options{})
			hs := append(addN(t, w, 2, false), addN(t, w, 1, true)...)
			w.BeginCycle()
			w.PublishBlock(0, &Block{patterned(1), patterned(2)})
			for range 3 {
				w.AppendHistory(hs[0], patterned(1))
			}
			w.EndCycle(1)
			noProblems(t, checkBytes(w.heap()))
			before := bytes.Clone(w.heap())
			tt.harm(w.v)
			ps := checkBytes(w.heap())
			copy(w.heap(), before)
			found := false
			for _, p := range ps {
				found = found || strings.HasPrefix(p.Object, tt.object) && strings.Contains(p.Text, tt.text)
			}
			if !found || len(ps) > 2 {
				t.Fatalf("found %v", ps)
			}
			if s := fmt.Sprint(ps[0]); !strings.Contains(s, ps[0].Object) {
				t.Error(s)
			}
		})
	}
}

func fill(b []byte) {
	for i := range b {
		b[i] = 'x'
	}
}

// now is the current copy of block i.
func (v *view) now(i uint32) *copyMem {
	b := v.slot(i * BlockLen).block()
	return b.copy(*b.seq())
}
