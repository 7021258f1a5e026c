package shm

import (
	"reflect"
	"testing"
	"unsafe"
)

// overlays names, for every table of docs/mirror-format.md, the struct that is
// laid over it and the constants of layout.go.
var overlays = map[string]map[string]struct {
	field    string
	constant int
}{
	"": {
		"magic": {"magic", hdrMagic}, "version": {"version", hdrVersion}, "byte_order": {"byteOrder", hdrByteOrder},
		"header_length": {"length", hdrLength}, "clock": {"clock", hdrClock}, "segment_length": {"segmentLength", hdrSegmentLength},
		"created_wall": {"createdWall", hdrCreatedWall}, "compat": {"compat", hdrCompat}, "incompat": {"incompat", hdrIncompat},
		"segment_counters": {"segmentCounters", hdrSegmentCounters}, "block_length": {"blockLen", hdrBlockLen}, "history": {"history", hdrHistory},
		"file": {"file", hdrFile}, "checksum": {"checksum", hdrChecksum},
		"generation": {"generation", hdrGeneration}, "started": {"started", hdrStarted},
		"started_wall": {"startedWall", hdrStartedWall}, "heartbeat_period": {"heartbeatPeriod", hdrHeartbeatPeriod},
		"cool_down": {"coolDown", hdrCoolDown}, "takeovers": {"takeovers", hdrTakeovers}, "heartbeat": {"heartbeat", hdrHeartbeat},
		"state": {"state", hdrState}, "cycle_begun": {"cycleBegun", hdrCycleBegun}, "cycle_done": {"cycleDone", hdrCycleDone},
		"cycle_done_at": {"cycleDoneAt", hdrCycleDoneAt}, "poll_period": {"pollPeriod", hdrPollPeriod},
		"catalogue_changes": {"catalogueChanges", hdrCatalogueChanges},
		"counters_used":     {"countersUsed", hdrCountersUsed}, "records_used": {"recordsUsed", hdrRecordsUsed},
		"segments": {"segments", hdrSegments}, "refused": {"refused", hdrRefused},
		"counter_limit": {"counterLimit", hdrCounterLimit}, "record_limit": {"recordLimit", hdrRecordLimit},
		"history_intent": {"historyIntent", hdrHistoryIntent}, "history_tail": {"historyTail", hdrHistoryTail},
		"replaced": {"replaced", hdrReplaced}, "device_generation": {"deviceGeneration", hdrDeviceGeneration},
		"device_length": {"deviceLength", hdrDeviceLength}, "table": {"table", hdrTable},
	},
	"seg": {"kind": {"kind", segKind}, "high": {"high", segHigh}},
	"ent": {
		"identity": {"identity", entIdentity}, "freed_at": {"freedAt", entFreedAt}, "added_at": {"addedAt", entAddedAt},
		"born": {"born", entBorn}, "flags": {"flags", entFlags}, "name": {"name", entName}, "kind": {"kind", entKind},
		"unit": {"unit", entUnit}, "labels": {"labels", entLabels}, "text": {"text", entText}, "seq": {"seq", entSeq},
		"live_state": {"live", entLiveState}, "live_map": {"liveMap", entLiveMap}, "live_base": {"liveBase", entLiveBase}, "slots": {"slots", entSlots},
	},
	"slot": {
		"flags": {"flags", slotFlags}, "seen": {"seen", slotSeen}, "cookie": {"cookie", slotCookie}, "base_packets": {"basePackets", slotBasePackets},
		"base_bytes": {"baseBytes", slotBaseBytes}, "discontinuities": {"discontinuities", slotDiscontinuities},
		"width": {"width", slotWidth}, "device": {"device", slotDevice}, "byte_basis": {"basis", slotBasis}, "source": {"source", slotSource},
	},
	"cpy": {
		"cycle": {"cycle", cpyCycle}, "oldest": {"oldest", cpyOldest}, "newest": {"newest", cpyNewest},
		"live": {"live", cpyLive}, "epoch": {"epoch", cpyEpoch}, "values": {"values", cpyValues},
	},
	"val": {"packets": {"Packets", valPackets}, "bytes": {"Bytes", valBytes}, "sampled_at": {"SampledAt", valSampled}},
	"rec": {"seq": {"seq", recSeq}, "slots": {"slots", recSlots}, "cycles": {"cycles", recCycle}},
	"his": {
		"position": {"position", hisPosition}, "index": {"index", hisIndex}, "generation": {"generation", hisGeneration},
		"time": {"time", hisTime}, "packets": {"packets", hisPackets}, "bytes": {"bytes", hisBytes}, "cycle": {"cycle", hisCycle}, "kind": {"kind", hisKind},
	},
	"dev": {
		"magic": {"magic", devMagic}, "version": {"version", devVersion}, "byte_order": {"byteOrder", devByteOrder},
		"header_length": {"length", devLength}, "slot_length": {"slotLength", devSlotLength}, "file_length": {"fileLength", devFileLength},
		"created_wall": {"createdWall", devCreatedWall}, "generation": {"generation", devGeneration}, "slots": {"slots", devSlots},
		"checksum": {"checksum", devChecksum}, "ended_at": {"endedAt", devEndedAt},
	},
	"dsl": {
		"words": {"words", dslWords}, "seq": {"seq", dslSeq}, "max_value": {"maxValue", dslMaxValue},
		"shift": {"shift", dslShift}, "seen": {"seen", dslSeen}, "state": {"state", dslState}, "owner": {"owner", dslOwner},
	},
}

var structs = map[string]struct {
	typ  reflect.Type
	size int
}{
	"":     {reflect.TypeFor[headerMem](), headerSize},
	"seg":  {reflect.TypeFor[descriptorMem](), segmentDescriptorSize},
	"ent":  {reflect.TypeFor[entryMem](), entrySize},
	"slot": {reflect.TypeFor[slotMem](), slotSize},
	"cpy":  {reflect.TypeFor[copyMem](), copySize},
	"val":  {reflect.TypeFor[Value](), valueSize},
	"rec":  {reflect.TypeFor[recordMem](), recordSize},
	"his":  {reflect.TypeFor[historyMem](), historySize},
	"dev":  {reflect.TypeFor[deviceHeaderMem](), deviceHeaderSize},
	"dsl":  {reflect.TypeFor[deviceSlotMem](), deviceSlotSize},
}

// The fields of the structs that overlay the file must be at the offsets of layout.go.
func TestStructsMatchTheOffsetsOfTheLayout(t *testing.T) {
	for table, s := range structs {
		if int(s.typ.Size()) != s.size {
			t.Errorf("%s is %d bytes, want %d", s.typ, s.typ.Size(), s.size)
		}
		for name, o := range overlays[table] {
			f, ok := s.typ.FieldByName(o.field)
			if !ok || int(f.Offset) != o.constant {
				t.Errorf("%s.%s stands at %d, layout.go says %d", table, name, f.Offset, o.constant)
			}
		}
		named := 0
		for _, f := range reflect.VisibleFields(s.typ) {
			if f.Name != "_" && !f.Anonymous {
				named++
			}
		}
		if named != len(overlays[table]) {
			t.Errorf("%s has %d fields, %d are in the tables", s.typ, named, len(overlays[table]))
		}
	}
}

// The parts of a segment must be where layout.go says, and leave no gap.
func TestSegmentPartsFillTheSegment(t *testing.T) {
	for _, s := range []any{blocksMem{}, recordsMem{}} {
		if n := reflect.TypeOf(s).Size(); n != segmentSize {
			t.Errorf("%T is %d bytes, want %d", s, n, segmentSize)
		}
	}
	var b blocksMem
	var r recordsMem
	for _, tt := range []struct {
		what      string
		got, want uintptr
	}{
		{"entries", unsafe.Offsetof(b.entries), segEntries}, {"sequence words", unsafe.Offsetof(b.seqs), segSeq},
		{"intent words", unsafe.Offsetof(b.intents), segIntent}, {"first copies", unsafe.Offsetof(b.copies), segCopy0},
		{"second copies", unsafe.Offsetof(b.copies) + unsafe.Sizeof(b.copies[0]), segCopy1}, {"a line", unsafe.Sizeof(b.seqs[0]), lineSize},
		{"entries of records", unsafe.Offsetof(r.entries), segEntries}, {"records", unsafe.Offsetof(r.records), segRecords},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %d, layout.go says %d", tt.what, tt.got, tt.want)
		}
	}
	for history, want := range map[uint32]uint64{0: 65536, 2: 131072, 1024: 131072, 2048: 196608, 65536: 65536 + 4<<20} {
		if got := segmentOffset(history, 0); got != want {
			t.Errorf("history %d: the first segment lies at %d, want %d", history, got, want)
		}
		if got := segmentOffset(history, 3); got != want+3*segmentSize {
			t.Errorf("history %d: the fourth segment lies at %d", history, got)
		}
	}
}

func TestNextSeqRaisesTheEpochOnlyForAFreedCounter(t *testing.T) {
	for _, tt := range []struct {
		name string
		s    uint64
		free bool
		want uint64
	}{
		{"publish", 5<<epochShift | 7, false, 5<<epochShift | 8},
		{"free", 5<<epochShift | 7, true, 6<<epochShift | 8},
		{"count comes round", 5<<epochShift | countMask, false, 5 << epochShift},
		{"epoch stays saturated", epochMax<<epochShift | 1, true, epochMax<<epochShift | 2},
	} {
		if got := nextSeq(tt.s, tt.free); got != tt.want {
			t.Errorf("%s: %#x, want %#x", tt.name, got, tt.want)
		}
	}
}
