package shm

import "encoding/binary"

// SetLive tells readers where they can read the counter live from now on.
func (w *Writer) SetLive(h Handle, s LiveSlot) error {
	if s.Map == 0 {
		s = LiveSlot{}
	}
	return w.onEntry(h, func(ent *entryMem) error {
		w.putLive(ent, s)
		return nil
	})
}

// putLive changes the live words of an entry.
//
// After it returns, the writer may give the slot to another counter. That takes a store too, of a rule which the kernel must
// see before it counts for the other counter. The fence makes the odd first word visible before that store. So a reader that
// has read a count of the other counter finds the first word changed when it looks again, and drops what it read.
func (w *Writer) putLive(e *entryMem, s LiveSlot) {
	seq := e.live >> 32 & (1<<32 - 1)
	if s.Map == 0 && e.liveMap == 0 && seq&1 == 0 {
		return // nothing to change. An odd number, which a killed writer left, must become even.
	}

	w.step("live-begin")
	seq |= 1
	announce64(&e.live, seq<<32) // barrier view-begin-fence
	w.step("live-announced")
	store64(&e.liveMap, uint64(s.Map)<<32|uint64(s.Epoch))
	store64(&e.liveBase[0], s.BasePackets)
	store64(&e.liveBase[1], s.BaseBytes)
	w.step("live-filled")
	publish64(&e.live, (seq+1)<<32|uint64(s.Slot)) // barrier view-release: the words above before the even number
	w.step("live-done")
}

// LivePath returns the path of the socket NAME.live, which hands out the map in which the kernel counts for the mirror at
// path.
func LivePath(path string) string { return beside(path, "live") }

// LiveMap is memory in which the kernel counts: the slots of all counters for each CPU, then a word with the epoch.
// docs/mirror-format.md specifies it.
type LiveMap struct {
	FD       int    // a descriptor through which no process can write to the map
	ID       uint32 // the kernel's number of the map
	CPUs     int
	Counters int // slots of a CPU
	Stride   int // bytes from one CPU's slots to the next one's
}

// Message returns the message of a socket that hands out m.
func (m LiveMap) Message() []byte {
	b := make([]byte, liveSize)
	copy(b, liveMagic)
	binary.NativeEndian.PutUint32(b[lvmVersion:], liveVersion)
	binary.NativeEndian.PutUint32(b[lvmByteOrder:], byteOrder)
	binary.NativeEndian.PutUint32(b[lvmMap:], m.ID)
	binary.NativeEndian.PutUint32(b[lvmCPUs:], uint32(m.CPUs))
	binary.NativeEndian.PutUint32(b[lvmCounters:], uint32(m.Counters))
	binary.NativeEndian.PutUint64(b[lvmStride:], uint64(m.Stride))
	return b
}
