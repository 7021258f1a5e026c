package shm

import (
	"fmt"
	"syscall"
	"unsafe"
)

// The structs below overlay the bytes of a mirror. Their fields are at the offsets of layout.go, which
// TestStructsMatchTheOffsetsOfTheLayout checks, and are integers only, so that any bytes are a valid value. Code must access a
// word that another process may write meanwhile by sync/atomic or by the functions of mem_*.go, never by plain Go loads and
// stores: the compiler may split, repeat or drop those.

// fixedMem is the immutable part of the header.
type fixedMem struct {
	magic           [8]byte
	version         uint32
	byteOrder       uint32
	length          uint32
	clock           uint32
	segmentLength   uint64
	createdWall     int64
	compat          uint32
	incompat        uint32
	segmentCounters uint32
	blockLen        uint32
	history         uint32
	_               uint32
	file            uint64
	_               [hdrChecksum - hdrFile - 8]byte
	checksum        uint64
}

// headerMem is the whole header.
type headerMem struct {
	fixedMem
	_ [hdrGeneration - fixedSize]byte

	generation      uint64
	started         int64
	startedWall     int64
	heartbeatPeriod int64
	coolDown        int64
	takeovers       uint64
	_               [hdrHeartbeat - hdrTakeovers - 8]byte

	heartbeat int64
	state     uint32
	_         [hdrCycleBegun - hdrState - 4]byte

	cycleBegun  uint64
	cycleDone   uint64
	cycleDoneAt int64
	pollPeriod  int64
	_           [hdrCatalogueChanges - hdrPollPeriod - 8]byte

	catalogueChanges uint64
	countersUsed     uint32
	recordsUsed      uint32
	segments         uint32
	_                uint32
	refused          uint64
	counterLimit     uint32
	recordLimit      uint32
	_                [hdrHistoryIntent - hdrRecordLimit - 4]byte

	historyIntent uint64
	historyTail   uint64
	_             [hdrReplaced - hdrHistoryTail - 8]byte

	replaced uint64
	_        [hdrDeviceGeneration - hdrReplaced - 8]byte

	deviceGeneration uint64
	deviceLength     uint64
	_                [hdrTable - hdrDeviceLength - 8]byte

	table [maxSegments]descriptorMem
	_     [headerSize - hdrTable - maxSegments*segmentDescriptorSize]byte
}

// descriptorMem describes a segment.
type descriptorMem struct {
	kind uint32
	high uint32
}

// blocksMem is a segment of blocks.
type blocksMem struct {
	entries [SegmentLen]entryMem
	seqs    [segmentBlocks]lineMem
	intents [segmentBlocks]lineMem
	copies  [2][segmentBlocks]copyMem
	_       [segmentSize - segCopy1 - segmentBlocks*copySize]byte
}

// recordsMem is a segment of records.
type recordsMem struct {
	entries [SegmentLen]entryMem
	records [SegmentLen]recordMem
}

// lineMem is a word alone in its cache line, so that a store to it takes no other word away from readers.
type lineMem struct {
	word uint64
	_    [lineSize - 8]byte
}

// entryMem is a catalogue entry. The live words and the two slots change under sequence words of their own. The fields that
// describe the counter (born, addedAt and the texts) change only while identity says BUILDING.
type entryMem struct {
	identity uint64
	freedAt  int64
	addedAt  int64
	born     uint64
	flags    uint32
	_        [entName - entFlags - 4]byte
	name     [nameSize]byte
	kind     [kindSize]byte
	unit     [unitSize]byte
	labels   [labelsSize]byte
	text     [textSize]byte
	seq      uint64
	_        [entLiveState - entSeq - 8]byte
	live     uint64
	liveMap  uint64
	liveBase [2]uint64
	slots    [2]slotMem
}

// slotMem is the part of an entry that changes while the counter is live. An entry has two; the low bit of its seq says which
// one is current.
type slotMem struct {
	flags           uint32
	seen            uint32
	cookie          uint64
	basePackets     uint64
	baseBytes       uint64
	discontinuities uint64
	width           uint32
	device          uint32
	basis           [basisSize]byte
	source          [sourceSize]byte
}

// copyMem is one of the two copies of a block.
type copyMem struct {
	cycle  uint64
	oldest int64
	newest int64
	live   uint64
	epoch  uint64
	_      [3]uint64
	values Block
}

// recordMem is the record of a latency counter: two values, and the low halves of the cycles in which they were published.
type recordMem struct {
	seq    uint64
	slots  [2]Value
	cycles [2]uint32
}

// historyMem is a record of the history ring.
type historyMem struct {
	position   uint64
	index      uint32
	generation uint32
	time       int64
	packets    uint64
	bytes      uint64
	cycle      uint64
	kind       uint32
	_          uint32
	_          uint64
}

// overlayHeader returns the header in b, which is mapped or a large heap slice. It checks length and alignment, because a test
// may pass anything.
func overlayHeader(b []byte) (*headerMem, error) {
	if len(b) < headerSize {
		return nil, tooShort(int64(len(b)))
	}
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)%8 != 0 {
		return nil, fmt.Errorf("region not aligned to 8 bytes: %w", ErrFormat)
	}
	return (*headerMem)(p), nil
}

// overlay returns n elements of T at offset off of b, without reading them. T must be one of the structs above or an integer.
// The caller must have checked that the elements are inside b, and that off is a multiple of T's alignment, which is at most 8.
// The caller must also keep b's mapping alive: the garbage collector does not know that the elements are part of it.
func overlay[T any](b []byte, off uint64, n uint32) []T {
	if n == 0 {
		return nil
	}
	_ = b[off+uint64(n)*uint64(unsafe.Sizeof(*new(T)))-1] // the runtime checks the length, too
	return unsafe.Slice((*T)(unsafe.Pointer(&b[off])), n)
}

// wordsAt returns the memory of *p as 64-bit words, for copying. T must be one of the structs above, which are aligned to 8
// bytes and a multiple of 8 bytes long.
func wordsAt[T any](p *T) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(p)), unsafe.Sizeof(*p)/8)
}

// wordsOf is wordsAt for all elements of s, which must not be empty.
func wordsOf[T any](s []T) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(s))), uintptr(len(s))*unsafe.Sizeof(s[0])/8)
}

// bytesOf returns the memory of *p. It lives as long as p.
func bytesOf[T any](p *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(p)), unsafe.Sizeof(*p))
}

// syscallFutexWake calls futex(2), whose number is trap, to wake n sleepers on word. The call does not block, so it is a raw
// one: an ordinary system call in an idle process would wake the runtime's monitor thread.
func syscallFutexWake(trap uintptr, word *uint32, op, n uintptr, bits uint32) (uintptr, syscall.Errno) {
	woken, _, errno := syscall.RawSyscall6(trap, uintptr(unsafe.Pointer(word)), op, n, 0, 0, uintptr(bits))
	return woken, errno
}

// syscallFutex calls futex(2), whose number is trap, to sleep on word. The caller must keep word's mapping alive. The addresses
// stay valid during the call: Go does not move mapped memory, nor the stack of a goroutine in a system call.
func syscallFutex(trap uintptr, word *uint32, op, value uintptr, until int64, bits uint32) (uintptr, syscall.Errno) {
	at := syscall.NsecToTimespec(until)
	n, _, errno := syscall.Syscall6(trap, uintptr(unsafe.Pointer(word)), op, value, uintptr(unsafe.Pointer(&at)), 0, uintptr(bits))
	return n, errno
}
