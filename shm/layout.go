package shm

// The layout of a mirror, format version 1. docs/mirror-format.md specifies it, and TestLayoutIsThatOfTheSpecification compares
// the two. Offsets are in bytes. Words are in the byte order of the writer's machine, which the byte order mark shows. 64-bit
// words are aligned to 8 bytes.

// Identification.
const (
	Magic     = "FLOWTALY" // the first 8 bytes of the file
	Version   = 1          // of the format
	byteOrder = 0x01020304 // as the writer stores it
	clockMono = 1          // CLOCK_MONOTONIC, as in clock_gettime(2)
)

// Sizes that version 1 fixes.
const (
	BlockLen      = 64   // counters per block
	SegmentLen    = 4096 // counters per segment
	headerSize    = 65536
	segmentSize   = 4456448 // 68 x 65536: a multiple of every page size
	maxSegments   = 4096
	segmentBlocks = SegmentLen / BlockLen
	entrySize     = 1024
	copySize      = 1600
	recordSize    = 64 // one cache line
	historySize   = 64
	lineSize      = 64
	sectionAlign  = 65536 // the ring and every segment start on a page of any machine
)

// Header, immutable part. The writer writes it before the file gets its name, and the checksum covers it. A reader must copy it
// once and use only the copy.
const (
	hdrMagic           = 0
	hdrVersion         = 8 // u32, stored last, with release: 0 means not ready
	hdrByteOrder       = 12
	hdrLength          = 16 // u32
	hdrClock           = 20 // u32
	hdrSegmentLength   = 24
	hdrCreatedWall     = 32  // ns, CLOCK_REALTIME
	hdrCompat          = 40  // u32: a reader ignores bits it does not know
	hdrIncompat        = 44  // u32: a reader refuses bits it does not know
	hdrSegmentCounters = 48  // u32
	hdrBlockLen        = 52  // u32, 64
	hdrHistory         = 56  // u32, 0 or a power of two
	hdrFile            = 64  // random, not 0: names the file
	hdrChecksum        = 120 // FNV-1a 64 of bytes 0 to 119
	fixedSize          = 128
)

// Header, mutable part. Its groups are 128 bytes apart, so that no two share a cache line, or a pair of lines that the hardware
// fetches together.
const (
	hdrGeneration      = 512 // random, non-zero, new with every writer
	hdrStarted         = 520
	hdrStartedWall     = 528
	hdrHeartbeatPeriod = 536
	hdrCoolDown        = 544
	hdrTakeovers       = 552

	hdrHeartbeat = 640
	hdrState     = 648 // u32

	hdrCycleBegun  = 768
	hdrCycleDone   = 776
	hdrCycleDoneAt = 784
	hdrPollPeriod  = 792 // ns; 0: the writer has no period, or does not tell

	hdrCatalogueChanges = 896
	hdrCountersUsed     = 904 // u32
	hdrRecordsUsed      = 908 // u32
	hdrSegments         = 912 // u32, stored with release
	hdrRefused          = 920
	hdrCounterLimit     = 928 // u32; 0: none
	hdrRecordLimit      = 932 // u32

	hdrHistoryIntent = 1024
	hdrHistoryTail   = 1032

	hdrReplaced = 1280 // not 0: the file is given up for ever; the file word of the one that follows

	hdrDeviceGeneration = 1408 // of the device segment that the entries name; 0: of none
	hdrDeviceLength     = 1416 // of that file

	hdrTable = 8192 // one descriptor per segment
)

// A segment's descriptor, its kinds, and the offsets in a segment. The 4096 entries come first.
//
// In a segment of blocks the sequence words of all blocks follow, then their intent words, then all first copies, then all
// second copies, so that a snapshot can copy all copies of one parity in one piece. Each intent word has a cache line of its
// own: the announcement of a publish must not take the sequence word's line away from readers.
const (
	segKind               = 0 // u32, fixed once the header's number of segments covers it
	segHigh               = 4 // u32: slots from here on were never used
	segmentDescriptorSize = 8

	kindBlocks  = 1
	kindRecords = 2

	segEntries = 0
	segSeq     = 4194304 // of block b at + 64 b
	segIntent  = 4198400
	segCopy0   = 4202496 // of block b at + 1600 b
	segCopy1   = 4304896
	segRecords = 4194304 // of slot s at + 64 s
)

// A catalogue entry.
const (
	entIdentity  = 0 // state<<32 | generation
	entFreedAt   = 8
	entAddedAt   = 16
	entBorn      = 24 // epoch of the block or record when the entry was added
	entFlags     = 32 // u32
	entName      = 64
	entKind      = 128
	entUnit      = 144
	entLabels    = 160
	entText      = 416
	entSeq       = 704 // of the two slots that follow
	entLiveState = 736 // of a counter that the kernel counts in memory that readers can map
	entLiveMap   = 744 // map<<32 | epoch; 0: no live view
	entLiveBase  = 752 // two u64: total = base + sum of the slots
	entSlots     = 768

	nameSize   = 64
	kindSize   = 16
	unitSize   = 16
	labelsSize = 256
	textSize   = 288

	entFlagTextCut = 1 << 0 // Text did not fit: see TextSum

	slotSize            = 128
	slotFlags           = 0 // u32
	slotSeen            = 4 // u32, on the source's clock of losses
	slotCookie          = 8
	slotBasePackets     = 16
	slotBaseBytes       = 24
	slotDiscontinuities = 32
	slotWidth           = 40 // u32, bits of the source's own counters
	slotDevice          = 44 // u32, slot of the device segment + 1; 0: no device writes for it
	slotBasis           = 48
	slotSource          = 64

	basisSize  = 16
	sourceSize = 64

	slotFlagValid     = 1 << 0
	slotFlagStale     = 1 << 1
	slotFlagAmbiguous = 1 << 2
	slotFlagSourceCut = 1 << 3 // Source did not fit and ends early
)

// A copy of the 64 values of a block.
const (
	cpyCycle  = 0
	cpyOldest = 8
	cpyNewest = 16
	cpyLive   = 24
	cpyEpoch  = 32
	cpyValues = 64 // 64 rows of packets, bytes, sampled-at
)

// A value, in a row of a block's copy and in a slot of a record alike.
const (
	valPackets = 0
	valBytes   = 8
	valSampled = 16
	valueSize  = 24
)

// A two-slot record.
const (
	recSeq   = 0
	recSlots = 8  // two values
	recCycle = 56 // two u32: low halves of the cycles of slot 0 and 1
)

// A sequence word is epoch<<40 | count. The epoch counts how often a counter of the block (or the record's counter) was freed.
// It stops at epochMax, and then no longer tells whether a counter was freed: a reader must assume so each time.
const (
	epochShift = 40
	countMask  = 1<<epochShift - 1
	epochMax   = 1<<24 - 1
)

// catalogue_changes is swaps<<48 | changes. An Exchange raises swaps when it begins to swap counters and when it ends, so an odd
// number means that it is swapping.
const swapsShift = 48

// A history record.
const (
	hisPosition   = 0 // number of the record, from 1; 0 was never written
	hisIndex      = 8
	hisGeneration = 12
	hisTime       = 16
	hisPackets    = 24
	hisBytes      = 32
	hisCycle      = 40
	hisKind       = 48 // u32, 0: a sample
)

// The device segment, NAME.device, has the words that devices write. It is a file of its own, because its words must not move
// while a device may write to them, even if the mirror is made anew. A header of one page comes first, then the slots.
const (
	deviceMagic      = "FLOWTDEV" // the first 8 bytes of the file
	deviceVersion    = 1
	deviceHeaderSize = 4096 // a page of most machines

	devMagic       = 0
	devVersion     = 8  // u32, stored last, with release: 0 means not ready
	devByteOrder   = 12 // u32
	devLength      = 16 // u32, 4096
	devSlotLength  = 20 // u32, 128
	devFileLength  = 24
	devCreatedWall = 32 // ns, CLOCK_REALTIME
	devGeneration  = 40 // random, non-zero
	devSlots       = 48 // u32
	devChecksum    = 56 // FNV-1a 64 of bytes 0 to 55

	devEndedAt = 512 // when the next writer ended it; 0: in use

	// A slot: the device writes the first line, the writer the second. Of two words the first is for completions, the
	// second for errors.
	dslWords    = 0  // two u64, each modulo max_value + 1
	dslSeq      = 64 // odd: serves a counter; even: free, or being filled
	dslMaxValue = 72
	dslShift    = 80  // two u64: word = (total + shift) mod (max_value + 1)
	dslSeen     = 96  // two u64: a total that was reached; the total now is at most max_value above it
	dslState    = 112 // u32; 0: the words are here; 1: they are in the words file that owner names
	dslOwner    = 120 // number of the words file

	deviceSlotSize = 128
)

// The message of the socket NAME.live, which comes with one descriptor.
const (
	liveMagic   = "FLOWLIVE" // its first 8 bytes
	liveVersion = 1
	liveSize    = 64

	lvmMagic     = 0
	lvmVersion   = 8  // u32
	lvmByteOrder = 12 // u32
	lvmMap       = 16 // u32, the kernel's number of the map
	lvmCPUs      = 20 // u32
	lvmCounters  = 24 // u32, slots of a CPU
	lvmStride    = 32 // bytes from one CPU's slots to the next one's
)

// The page of waiters, version 1. docs/mirror-format.md specifies it, and TestPageLayoutIsThatOfTheSpecification compares the two.
const (
	pageMagic   = "FLOWWAIT" // its first 8 bytes
	pageVersion = 1
	pageSize    = 4096 // of the file, on every machine

	wpMagic      = 0
	wpVersion    = 8  // u32
	wpByteOrder  = 12 // u32
	wpGeneration = 16 // of the writer that wakes; 0: none does yet
	wpWord       = 64 // u32, the futex: another value before each wake
	wpTurn       = 68 // u32, raised before each pass over the sleepers

	turns = 16 // after which the bits of a sleeper's turn repeat
)

// States of a catalogue entry.
const (
	entUnused   = 0
	entBuilding = 1
	entLive     = 2
	entRetired  = 3
)

// State of the writer, in the header.
type State uint32

const (
	Boot State = 1 // the writer has published nothing yet
	Run  State = 2 // the writer is publishing values
	Halt State = 3 // the writer ended in good order and left its last values
	Fail State = 4 // the writer gave up and left its last values
)

func (s State) String() string {
	switch s {
	case Boot:
		return "boot"
	case Run:
		return "run"
	case Halt:
		return "halt"
	case Fail:
		return "fail"
	}
	return "invalid"
}
