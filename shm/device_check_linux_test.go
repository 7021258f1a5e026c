package shm

import (
	"strings"
	"testing"
)

// Check finds each fault in a segment, each contradiction between it and the catalogue, and nothing else.
func TestCheckFindsEachFaultOfADeviceSegment(t *testing.T) {
	for _, tt := range []struct {
		object, text string
		harm         func(w *Writer, hs []Handle)
	}{
		{"device segment", "bytes long", func(w *Writer, _ []Handle) { w.v.hdr.deviceLength += 4096 }},
		{"device segment", "has generation", func(w *Writer, _ []Handle) { w.v.hdr.deviceGeneration++ }},
		{"device segment", "reserved byte", func(w *Writer, _ []Handle) {
			w.device.v.b[devSlots+4] = 1
			rechecksummed(w.device.v.b)
		}},
		{"device segment", "reserved byte", func(w *Writer, _ []Handle) { w.device.v.b[devChecksum+8] = 1 }},
		{"device segment", "reserved byte", func(w *Writer, _ []Handle) { w.device.v.b[deviceHeaderSize-1] = 1 }},
		{"device segment", "reserved byte", func(w *Writer, _ []Handle) { w.device.v.b[len(w.device.v.b)-1] = 1 }},
		{"device segment", "checksum", func(w *Writer, _ []Handle) { w.device.v.hdr.createdWall++ }},
		{"device slot 2", "reserved byte", func(w *Writer, _ []Handle) { w.device.v.b[deviceHeaderSize+2*deviceSlotSize+16] = 1 }},
		{"device slot 2", "reserved byte", func(w *Writer, _ []Handle) { w.device.v.b[deviceHeaderSize+2*deviceSlotSize+dslState+4] = 1 }},
		{"device slot 0", "state is 2", func(w *Writer, _ []Handle) { w.device.v.slots[0].state = 2 }},
		{"device slot 0", "number of the words file is 9", func(w *Writer, _ []Handle) { w.device.v.slots[0].owner = 9 }},
		{"device slot 1", "number of the words file is 0", func(w *Writer, _ []Handle) { w.device.v.slots[1].state = wordsApart }},
		{"device slot 0", "largest value of 0", func(w *Writer, _ []Handle) {
			s := &w.device.v.slots[0]
			s.maxValue, s.shift = 0, [2]uint64{}
		}},
		{"device slot 1", "word is 256", func(w *Writer, _ []Handle) { w.device.v.slots[1].words[1] = 256 }},
		{"device slot 1", "shift is 257", func(w *Writer, _ []Handle) { w.device.v.slots[1].shift[0] = 257 }},
		{"entry 0", "names device slot 6 of 3", func(w *Writer, hs []Handle) { w.slotNow(hs[0]).device = 7 }},
		{"entry 1", "as entry 0 does", func(w *Writer, hs []Handle) { w.slotNow(hs[1]).device = 1 }},
		{"entry 0", "serves no counter", func(w *Writer, hs []Handle) { w.device.v.slots[0].seq++ }},
		{"entry 1", "serves no counter", func(w *Writer, hs []Handle) { w.slotNow(hs[1]).device = 3 }},
	} {
		t.Run(tt.object+" "+tt.text, func(t *testing.T) {
			path := mirrorPath(t)
			w, err := Create(with(small, path))
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			hs := addN(t, w, 2, false)
			seg, err := w.DeviceSegment(3)
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range hs {
				if err := w.SetDevice(h, mustSlot(t, seg), 100, 1, 255); err != nil {
					t.Fatal(err)
				}
			}
			checkFile(t, path)
			tt.harm(w, hs)
			ps, err := Check(path)
			if err != nil || len(ps) != 1 || ps[0].Object != tt.object || !strings.Contains(ps[0].Text, tt.text) {
				t.Errorf("found %v, %v", ps, err)
			}
		})
	}
}

// slotNow is the current slot of an entry.
func (w *Writer) slotNow(h Handle) *slotMem {
	e := w.v.slot(h.Index).entry()
	return &e.slots[e.seq&1]
}
