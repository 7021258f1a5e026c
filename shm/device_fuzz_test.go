package shm

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// deviceBytes is a mirror and its segment, of a writer that works with both.
func deviceBytes(t testing.TB) (mirror, segment []byte, hs []Handle) {
	w, _ := heapMirror(t, 64, 2, 0, Options{})
	seg := heapDevice(t, w, &Reader{}, 5)
	hs = append(addN(t, w, 2, false), addN(t, w, 2, true)...)
	for i, h := range hs {
		s := mustSlot(t, seg)
		if err := w.SetDevice(h, s, uint64(1000*i), uint64(i), []uint64{255, 1<<64 - 1}[i%2]); err != nil {
			t.Fatal(err)
		}
		s.mem().count(completions, 9, 255)
	}
	return bytes.Clone(w.heap()), bytes.Clone(seg.m.b), hs
}

// editDevice applies edits of 4 bytes to a segment: header or slots, the offset, a byte, and how far
// the word there is shifted. At the end the checksum is made right if sum is set.
func editDevice(b, edits []byte, sum bool) {
	for ; len(edits) >= 4; edits = edits[4:] {
		at := int(edits[1]) % 64
		if edits[0]%4 != 0 {
			at = deviceHeaderSize + (int(edits[0])<<8|int(edits[1]))%(5*deviceSlotSize)
		}
		b[at] = edits[2]
		if edits[0]&16 != 0 {
			binary.NativeEndian.PutUint64(b[at&^7:], uint64(edits[2])<<(edits[3]&63))
		}
	}
	if sum {
		rechecksummed(b)
	}
}

// Whatever the bytes of a mirror and of its segment are, reading the words of devices ends, without a
// fault; the calls for a single counter do not panic either.
func FuzzDeviceSegment(f *testing.F) {
	mirror, segment, hs := deviceBytes(f)
	base := newOriginal(f, mirror)
	rnd := rand.New(rand.NewPCG(3, 4))
	f.Add([]byte{}, []byte{}, true)
	for range 30 {
		b := make([]byte, 18)
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		f.Add(b[:6], b[6:], true)
	}
	f.Fuzz(func(t *testing.T, m, s []byte, sum bool) {
		mb, sb := base.copy(t), bytes.Clone(segment)
		edit(mb, m, true)
		editDevice(sb, s, sum)
		mv, err := attach(heapStore{mb})
		if err != nil {
			return
		}
		r := &Reader{path: "fuzz", v: mv}
		v, err := attachDevice(sb)
		if err != nil {
			return
		}
		r.device = &deviceFile{m: &mapping{b: sb}, v: v}
		for i, h := range hs {
			d, err := r.Device(h)
			if err != nil {
				continue
			}
			_, _, _ = d.Load()
			if len(s) == 0 && len(m) == 0 && d.slot != &v.slots[i] {
				t.Errorf("counter %d has another's words", h.Index)
			}
		}
		c := &checker{v: r.v}
		c.deviceNames(v)
		for i := range v.slots {
			c = &checker{}
			c.deviceSlot(uint32(i), &v.slots[i])
		}
	})
}

// rechecksummed makes the checksum of a segment right again.
func rechecksummed(b []byte) []byte {
	binary.NativeEndian.PutUint64(b[devChecksum:], fnv64(b[:devChecksum]))
	return b
}
