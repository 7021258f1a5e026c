package shm

import (
	"os"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// devicePath returns the path of the device segment of the mirror at path.
func devicePath(path string) string { return beside(path, "device") }

func (w *Writer) devicePath() string { return devicePath(w.path) }

// useDevice makes seg the segment that entries refer to. No entry may name a slot yet.
func (w *Writer) useDevice(seg *DeviceSegment) {
	h := w.v.hdr
	atomic.StoreUint64(&h.deviceLength, seg.v.fixed.fileLength)
	publish64(&h.deviceGeneration, seg.v.fixed.generation)
	w.device = seg
	w.changed()
}

// adoptDevice ends the device segment of the last writer. Its queue pairs ended with its process, so the words no longer
// change. If this writer is killed in between, the next one does all of it again.
func (w *Writer) adoptDevice() {
	// First end the segment itself, because readers may have mapped it and not the mirror.
	h := w.v.hdr
	if w.lock != nil {
		m, v := endDevice(w.devicePath())
		if v != nil && v.fixed.generation == h.deviceGeneration {
			w.keepLast(m, v)
		}
		w.step("adopt-device-ended")
	}

	// Then the header names no segment, and last no entry names a slot.
	if h.deviceGeneration != 0 {
		publish64(&h.deviceGeneration, 0)
		atomic.StoreUint64(&h.deviceLength, 0)
	}
	w.step("adopt-device-forgotten")
	_ = w.v.eachUsed(func(_ uint32, p place) {
		e := p.entry()
		if e.identity>>32 == entLive && e.slots[e.seq&1].device != 0 {
			w.name(e, 0)
		}
	})
}

// endDevice ends the segment at path, and returns it so that the caller can read the last words. It returns nil if the file is
// missing, belongs to another user, or is no segment.
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
		if v, err = attachDevice(m.b); err != nil {
			return err
		}
		if !v.ended() {
			atomic.StoreInt64(&v.hdr.endedAt, Now())
		}
		return nil
	})
	if err != nil {
		return nil, nil
	}
	return m, v
}

// keepLast notes the last totals of the words in v, the segment of the last writer. m is its mapping.
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

// LastDevice returns the last totals that a device wrote in the words of h before this writer took over. The device may have
// counted on after the last published value, so they may be larger than Last. ok is false if h had no such words.
func (w *Writer) LastDevice(h Handle) (comp, errs uint64, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last, ok := w.lastDevice[h]
	return last[0], last[1], ok
}
