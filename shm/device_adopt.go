package shm

import (
	"os"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// devicePath is the file of the device segment of the mirror at path.
func devicePath(path string) string { return beside(path, "device") }

func (w *Writer) devicePath() string { return devicePath(w.path) }

// useDevice makes the entries' numbers of slots be of seg from now on. None names a slot yet.
func (w *Writer) useDevice(seg *DeviceSegment) {
	h := w.v.hdr
	atomic.StoreUint64(&h.deviceLength, seg.v.fixed.fileLength)
	publish64(&h.deviceGeneration, seg.v.fixed.generation)
	w.device = seg
	w.changed()
}

// adoptDevice ends the device segment of a former writer: its queue pairs ended with it, so the words stand still. It
// goes in this order: readers of the words are told, in the segment, which they may hold without the mirror; the header
// names no segment; no entry names a slot. Killed anywhere in this, the next writer does it again.
func (w *Writer) adoptDevice() {
	h := w.v.hdr
	if w.lock != nil {
		if m, v := endDevice(w.devicePath()); v != nil && v.fixed.generation == h.deviceGeneration {
			w.keepLast(m, v)
		}
		w.step("adopt-device-ended")
	}
	if h.deviceGeneration != 0 {
		publish64(&h.deviceGeneration, 0)
		atomic.StoreUint64(&h.deviceLength, 0)
	}
	w.step("adopt-device-forgotten")
	_ = w.v.eachUsed(func(_ uint32, p place) {
		if e := p.entry(); e.identity>>32 == entLive && e.slots[e.seq&1].device != 0 {
			w.name(e, 0)
		}
	})
}

// endDevice ends the segment at path, and returns it for its last words; nil when the file is missing
// or cannot be read.
func endDevice(path string) (*mapping, *deviceView) {
	f, st, err := openRegular(path, unix.O_RDWR)
	if err != nil {
		return nil, nil
	}
	defer f.Close()
	if st.Uid != uint32(os.Geteuid()) || st.Size < deviceHeaderSize {
		return nil, nil
	}
	m, err := mapFile(f, 0, uint64(st.Size), true)
	if err != nil {
		return nil, nil
	}
	var v *deviceView
	err = Guard(func() (err error) {
		if v, err = attachDevice(m.b); err == nil && !v.ended() {
			atomic.StoreInt64(&v.hdr.endedAt, Now())
		}
		return err
	})
	if err != nil {
		return nil, nil
	}
	return m, v
}

// keepLast notes the totals that the words of a former writer's segment show.
func (w *Writer) keepLast(m *mapping, v *deviceView) {
	w.lastDevice = make(map[Handle][2]uint64)
	_ = Guard(func() error {
		return w.v.eachUsed(func(i uint32, p place) {
			e := p.entry()
			n := e.slots[e.seq&1].device
			if e.identity>>32 != entLive || n == 0 || int(n) > len(v.slots) {
				return
			}
			s := &v.slots[n-1]
			comp, cerr := s.total(&s.words, completions)
			errs, eerr := s.total(&s.words, failures)
			if s.seq&1 == 1 && s.state != wordsApart && cerr == nil && eerr == nil {
				w.lastDevice[Handle{Index: i, Generation: uint32(e.identity)}] = [2]uint64{comp, errs}
			}
		})
	})
	runtime.KeepAlive(m)
}

// LastDevice returns the totals to which a device had brought h's words when this writer took over from the one that
// had set them: they go further than the value that was published last. ok is false where no device wrote them.
func (w *Writer) LastDevice(h Handle) (comp, errs uint64, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, ok := w.lastDevice[h]
	return last[0], last[1], ok
}
