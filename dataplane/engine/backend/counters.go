package backend

import "github.com/flowtally/flowtally/shm"

// Pair is the value of a slot: packets, and the bytes of exactly those packets. For a completion counter it is completions
// and errors.
type Pair struct{ Packets, Bytes uint64 }

// Add returns a + b. Pairs wrap around.
func Add(a, b Pair) Pair { return Pair{Packets: a.Packets + b.Packets, Bytes: a.Bytes + b.Bytes} }

// Sub returns a - b. Pairs wrap around.
func Sub(a, b Pair) Pair { return Pair{Packets: a.Packets - b.Packets, Bytes: a.Bytes - b.Bytes} }

// Max returns the higher packets and the higher bytes of two totals. Pairs wrap around, so a total may be "below 0".
func Max(a, b Pair) Pair {
	ahead := Sub(b, a)
	if int64(ahead.Packets) > 0 {
		a.Packets = b.Packets
	}
	if int64(ahead.Bytes) > 0 {
		a.Bytes = b.Bytes
	}
	return a
}

// Counters is what the poller reads: the slots of a backend, or of the queue pairs. Its owner gives each slot an ID.
type Counters interface {
	// Name returns the backend's name in the configuration.
	Name() string
	// Read fills dst[i] with the value of slot ids[i]. It must not allocate or make a system call, and must read both
	// halves of a pair at one moment.
	Read(ids []uint32, dst []Pair) error
}

// Marked is the number of adjacent slots that share a mark.
const Marked = 4

// RowCounters is implemented by sources able to fill rows of the mirror themselves. They know which slots have changed. The
// poller then skips the others.
type RowCounters interface {
	Counters
	// ReadRows fills dst with the slots from first on, as sampled at at, in ns on the clock of shm.Now. Like Read it must
	// not allocate or make a system call. After an error each row has its old or its new value.
	ReadRows(first uint32, dst []shm.Value, at int64) error
	// Marks fills dst with the marks of the first len(dst)*Marked slots. A mark changes when one of its slots is updated,
	// and comes around after 2^32 updates. Read the marks before the slots: a slot read afterwards has at least the
	// updates that the mark counts. Like Read it must not allocate or make a system call.
	Marks(dst []uint32) error
}

// LiveCounters is implemented by sources whose slots are in memory of the kernel, where readers of the mirror can read
// them without the poller.
type LiveCounters interface {
	Counters
	// LiveMap returns the memory and the low half of its epoch. The caller must not close the descriptor, which belongs
	// to the source.
	LiveMap() (m shm.LiveMap, epoch uint32, err error)
	// LiveBase returns the value which Read subtracts from slot id: the start of its present count.
	LiveBase(id uint32) Pair
}

// TimedCounters is implemented by sources whose slots are sampled at different times, such as devices: each sample
// takes a command.
type TimedCounters interface {
	Counters
	// ReadTimed fills dst[i] with the last sample of slot ids[i], and at[i] with its time, in ns on the clock of
	// shm.Now. If at[i] is 0, the slot was not sampled yet, and dst[i] is undefined. After Remove the final sample can
	// be read until the ID is used again. Like Read it must not allocate or make a system call.
	ReadTimed(ids []uint32, dst []Pair, at []int64) error
}

// ReadOne reads one slot.
func ReadOne(s Counters, id uint32) (Pair, error) {
	var p [1]Pair
	err := s.Read([]uint32{id}, p[:])
	return p[0], err
}
