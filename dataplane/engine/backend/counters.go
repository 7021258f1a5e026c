package backend

import "github.com/flowtally/flowtally/shm"

// Pair is the value of a slot: whole packets, and the bytes of exactly those packets. Of a completion counter it
// is completions and errors.
type Pair struct{ Packets, Bytes uint64 }

// Add returns a + b. Pairs wrap around.
func Add(a, b Pair) Pair { return Pair{Packets: a.Packets + b.Packets, Bytes: a.Bytes + b.Bytes} }

// Sub returns a - b. Pairs wrap around.
func Sub(a, b Pair) Pair { return Pair{Packets: a.Packets - b.Packets, Bytes: a.Bytes - b.Bytes} }

// Max returns the higher packets and the higher bytes of two totals. Either may be below 0, as pairs wrap around.
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

// Counters is the slots of one backend, or of the queue pairs, as the poller reads them. Each slot has an ID, which
// the backend gave it.
type Counters interface {
	// Name returns the backend's name in the configuration.
	Name() string
	// Read fills dst[i] with slot ids[i]. It allocates nothing, makes no system call and reads each pair whole.
	Read(ids []uint32, dst []Pair) error
}

// Marked is the number of adjacent slots that have one mark.
const Marked = 4

// RowCounters is implemented by a source that fills rows of a mirror's block by itself, and tells which slots
// have changed.
type RowCounters interface {
	Counters
	// ReadRows fills dst with the slots from first on, sampled at at, in ns on the clock of shm.Now. Like Read it
	// allocates nothing and makes no system call. After an error each row holds its old value or the value read.
	ReadRows(first uint32, dst []shm.Value, at int64) error
	// Marks fills dst with the marks of the first len(dst) times Marked slots: dst[i] differs from the mark of an
	// earlier call if one of its slots was updated between, less than 2^32 times. A slot that is read
	// afterwards has every update that dst has. Like Read it allocates nothing and makes no system call.
	Marks(dst []uint32) error
}

// LiveCounters is implemented by a source whose slots readers can read by themselves, in memory of the kernel.
type LiveCounters interface {
	Counters
	// LiveMap returns that memory, whose descriptor stays the source's, and the low half of its epoch.
	LiveMap() (m shm.LiveMap, epoch uint32, err error)
	// LiveBase returns the value at which the count of slot id began: Read subtracts it.
	LiveBase(id uint32) Pair
}

// TimedCounters is implemented by a source whose slots are sampled one by one, such as a device's:
// each sample takes a command.
type TimedCounters interface {
	Counters
	// ReadTimed fills dst[i] with the last sample of slot ids[i], and at[i] with its time, in ns on the clock of
	// shm.Now. Where at[i] is 0 the slot was not sampled yet, and dst[i] is undefined. Like Read it allocates
	// nothing and makes no system call. A slot that was removed keeps its final sample until its ID is reused.
	ReadTimed(ids []uint32, dst []Pair, at []int64) error
}

// ReadOne reads one slot.
func ReadOne(s Counters, id uint32) (Pair, error) {
	var p [1]Pair
	err := s.Read([]uint32{id}, p[:])
	return p[0], err
}
