package shm

import (
	"fmt"
	"syscall"
	"unsafe"
)

// The structs below lie over the bytes of a mirror. Their fields stand at the
// offsets of layout.go (TestOverlays) and hold nothing but integers, so any
// bytes are a valid value of them. Words that another process may write while
// they are read are accessed with sync/atomic or with the functions of
// mem_*.go, never by plain Go loads and stores.

type headerMem struct {
	magic       [8]byte
	version     uint32
	byteOrder   uint32
	length      uint32
	clock       uint32
	fileLength  uint64
	createdWall int64
	compat      uint32
	incompat    uint32
	counters    uint32
	records     uint32
	history     uint32
	blockLen    uint32
	sections    [sections]sectionMem
	waitLength  uint64
	_           [hdrChecksum - hdrWaitLength - 8]byte
	checksum    uint64
	_           [hdrGeneration - hdrChecksum - 8]byte

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
	_           [hdrCatalogueChanges - hdrCycleDoneAt - 8]byte

	catalogueChanges uint64
	countersUsed     uint32
	recordsUsed      uint32
	blocksHigh       uint32
	recordsHigh      uint32
	refused          uint64
	_                [hdrHistoryIntent - hdrRefused - 8]byte

	historyIntent uint64
	historyTail   uint64
	historyBase   uint64
	_             [hdrSuccessor - hdrHistoryBase - 8]byte

	successor    uint64
	supersededAt int64
	_            [hdrDeviceGeneration - hdrSupersededAt - 8]byte

	deviceGeneration uint64
	deviceLength     uint64
	_                [headerSize - hdrDeviceLength - 8]byte
}

type sectionMem struct {
	offset uint64
	length uint64
	stride uint32
	count  uint32
	_      uint64
}

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
	_        [entSlots - entSeq - 8]byte
	slots    [2]slotMem
}

type slotMem struct {
	flags           uint64
	cookie          uint64
	basePackets     uint64
	baseBytes       uint64
	discontinuities uint64
	width           uint32
	device          uint32
	basis           [basisSize]byte
	source          [sourceSize]byte
}

type blockMem struct {
	seq    uint64
	_      [lineSize - 8]byte
	copies [2]copyMem
	intent uint64
	_      [lineSize - 8]byte
}

type copyMem struct {
	cycle  uint64
	oldest int64
	newest int64
	live   uint64
	epoch  uint64
	_      [3]uint64
	values Block
}

type recordMem struct {
	seq    uint64
	slots  [2]Value
	cycles [2]uint32
}

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

// waitMem is the page of waiters.
type waitMem struct {
	magic      [8]byte
	version    uint32
	byteOrder  uint32
	generation uint64
	_          [wpWord - wpGeneration - 8]byte
	word       uint32
	turn       uint32
	_          [pageSize - wpTurn - 4]byte
}

// view is a region whose sections have been found to lie inside it: from here
// on Go's own bounds checks on the slices are all that is needed. It is valid
// as long as the region is mapped, which it does not see to: whoever uses a view
// keeps its mapping alive, with runtime.KeepAlive after the last use.
type view struct {
	b       []byte
	hdr     *headerMem
	table   [sections]sectionMem // as it was checked: the file's own may change under a hostile writer
	entries []entryMem
	blocks  []blockMem
	records []recordMem
	history []historyMem
}

// overlayHeader lays the header over b. b is at least a page long and, being
// mapped or a large heap slice, aligned to 8 bytes, which is checked because a
// test may hand in anything.
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

// overlay returns n elements of T at offset off of b. The caller has checked
// that they lie inside b and that off is a multiple of 4096; T is one of the
// structs above, so its alignment is at most 8.
func overlay[T any](b []byte, off uint64, n uint32) []T {
	if n == 0 {
		return nil
	}
	_ = b[off+uint64(n)*uint64(unsafe.Sizeof(*new(T)))-1] // the check, again, by the runtime
	return unsafe.Slice((*T)(unsafe.Pointer(&b[off])), n)
}

// words returns the memory of *p as 64-bit words, for copying. T is one of the
// structs above: 8-byte aligned and a multiple of 8 bytes long.
func words[T any](p *T) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(p)), unsafe.Sizeof(*p)/8)
}

// bytesOf returns the bytes of a header, for its checksum. It lives as long as h.
func bytesOf(h *headerMem) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(h)), headerSize)
}

// syscallFutex makes system call trap, futex(2), on word. The caller keeps word's
// mapping alive, and Go moves neither it nor, during the call, the time.
func syscallFutex(trap uintptr, word *uint32, op, value uintptr, until int64, bits uint32) (uintptr, syscall.Errno) {
	at := syscall.NsecToTimespec(until)
	n, _, errno := syscall.Syscall6(trap, uintptr(unsafe.Pointer(word)), op, value, uintptr(unsafe.Pointer(&at)), 0, uintptr(bits))
	return n, errno
}
