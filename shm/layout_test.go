package shm

import (
	"reflect"
	"testing"
)

// overlays names, for every table of docs/mirror-format.md and docs/device-words.md, the struct that is
// laid over it and the constants of layout.go.
var overlays = map[string]map[string]struct {
	field    string
	constant int
}{
	"": {
		"magic": {"magic", hdrMagic}, "version": {"version", hdrVersion}, "byte_order": {"byteOrder", hdrByteOrder},
		"header_length": {"length", hdrLength}, "clock": {"clock", hdrClock}, "file_length": {"fileLength", hdrFileLength},
		"created_wall": {"createdWall", hdrCreatedWall}, "compat": {"compat", hdrCompat}, "incompat": {"incompat", hdrIncompat},
		"counters": {"counters", hdrCounters}, "records": {"records", hdrRecords}, "history": {"history", hdrHistory},
		"block_length": {"blockLen", hdrBlockLen}, "sections": {"sections", hdrSections}, "wait_length": {"waitLength", hdrWaitLength},
		"checksum": {"checksum", hdrChecksum}, "generation": {"generation", hdrGeneration}, "started": {"started", hdrStarted},
		"started_wall": {"startedWall", hdrStartedWall}, "heartbeat_period": {"heartbeatPeriod", hdrHeartbeatPeriod},
		"cool_down": {"coolDown", hdrCoolDown}, "takeovers": {"takeovers", hdrTakeovers}, "heartbeat": {"heartbeat", hdrHeartbeat},
		"state": {"state", hdrState}, "cycle_begun": {"cycleBegun", hdrCycleBegun}, "cycle_done": {"cycleDone", hdrCycleDone},
		"cycle_done_at": {"cycleDoneAt", hdrCycleDoneAt}, "catalogue_changes": {"catalogueChanges", hdrCatalogueChanges},
		"counters_used": {"countersUsed", hdrCountersUsed}, "records_used": {"recordsUsed", hdrRecordsUsed},
		"blocks_high": {"blocksHigh", hdrBlocksHigh}, "records_high": {"recordsHigh", hdrRecordsHigh}, "refused": {"refused", hdrRefused},
		"history_intent": {"historyIntent", hdrHistoryIntent}, "history_tail": {"historyTail", hdrHistoryTail},
		"history_base":  {"historyBase", hdrHistoryBase},
		"successor":     {"successor", hdrSuccessor},
		"superseded_at": {"supersededAt", hdrSupersededAt}, "device_generation": {"deviceGeneration", hdrDeviceGeneration},
		"device_length": {"deviceLength", hdrDeviceLength},
	},
	"sec": {"offset": {"offset", secOffset}, "length": {"length", secLength}, "stride": {"stride", secStride}, "count": {"count", secCount}},
	"ent": {
		"identity": {"identity", entIdentity}, "freed_at": {"freedAt", entFreedAt}, "added_at": {"addedAt", entAddedAt},
		"born": {"born", entBorn}, "flags": {"flags", entFlags}, "name": {"name", entName}, "kind": {"kind", entKind},
		"unit": {"unit", entUnit}, "labels": {"labels", entLabels}, "text": {"text", entText}, "seq": {"seq", entSeq}, "slots": {"slots", entSlots},
	},
	"slot": {
		"flags": {"flags", slotFlags}, "cookie": {"cookie", slotCookie}, "base_packets": {"basePackets", slotBasePackets},
		"base_bytes": {"baseBytes", slotBaseBytes}, "discontinuities": {"discontinuities", slotDiscontinuities},
		"width": {"width", slotWidth}, "device": {"device", slotDevice}, "byte_basis": {"basis", slotBasis}, "source": {"source", slotSource},
	},
	"blk": {"seq": {"seq", blkSeq}, "copies": {"copies", blkCopy}, "intent": {"intent", blkIntent}},
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
		"shift": {"shift", dslShift}, "seen": {"seen", dslSeen},
	},
}

var structs = map[string]struct {
	typ  reflect.Type
	size int
}{
	"":     {reflect.TypeFor[headerMem](), headerSize},
	"sec":  {reflect.TypeFor[sectionMem](), secSize},
	"ent":  {reflect.TypeFor[entryMem](), entrySize},
	"slot": {reflect.TypeFor[slotMem](), slotSize},
	"blk":  {reflect.TypeFor[blockMem](), blockSize},
	"cpy":  {reflect.TypeFor[copyMem](), copySize},
	"val":  {reflect.TypeFor[Value](), valueSize},
	"rec":  {reflect.TypeFor[recordMem](), recordSize},
	"his":  {reflect.TypeFor[historyMem](), historySize},
	"dev":  {reflect.TypeFor[deviceHeaderMem](), headerSize},
	"dsl":  {reflect.TypeFor[deviceSlotMem](), deviceSlotSize},
}

// The structs that are laid over the file stand where layout.go says.
func TestOverlays(t *testing.T) {
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
		for i := range s.typ.NumField() {
			if s.typ.Field(i).Name != "_" {
				named++
			}
		}
		if named != len(overlays[table]) {
			t.Errorf("%s has %d fields, %d are in the tables", s.typ, named, len(overlays[table]))
		}
	}
}

func TestSequenceWords(t *testing.T) {
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
