package shm

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// kitFile makes a case of the kit: it changes a copy of the golden file, and records the changes and
// the results of the Go reader.
type kitFile struct {
	t     *testing.T
	c     kitCase
	path  string
	f     *os.File
	last  []byte // of the file, as the steps so far made it
	k     *kitReader
	every []string // asked after each step of a writer
}

func newKitFile(t *testing.T, about string, rules ...string) *kitFile {
	path := mirrorPath(t)
	goldenFile(t, path)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	k := &kitFile{t: t, c: kitCase{About: about, Rules: rules}, path: path, f: f, k: &kitReader{path: path}}
	k.last = k.read()
	return k
}

func (k *kitFile) read() []byte {
	b, err := os.ReadFile(k.path)
	if err != nil {
		k.t.Fatal(err)
	}
	return b
}

// note adds a step with the changes of the file since the last step.
func (k *kitFile) note(about string) {
	now := k.read()
	s := kitStep{About: about}
	if len(now) != len(k.last) {
		n := int64(len(now))
		s.Length = &n
		k.last = append(k.last, make([]byte, max(0, len(now)-len(k.last)))...)[:len(now)]
	}
	const word = 8
	for at := 0; at < len(now); at += word {
		if bytes.Equal(now[at:at+word], k.last[at:at+word]) {
			continue
		}
		end := at + word
		for end < len(now) && !bytes.Equal(now[end:end+word], k.last[end:end+word]) {
			end += word
		}
		s.Write = append(s.Write, kitWrite{At: int64(at), Hex: hex.EncodeToString(now[at:end])})
		at = end
	}
	k.last = now
	if s.Length != nil || s.Write != nil {
		k.c.Steps = append(k.c.Steps, s)
	}
}

// ask asks, and records the replies.
func (k *kitFile) ask(questions ...string) {
	for _, q := range questions {
		answer, err := json.Marshal(k.k.ask(q))
		if err != nil {
			k.t.Fatal(err)
		}
		step := kitStep{Ask: q, Answer: answer}
		if name, is := strings.CutPrefix(q, "load "); is {
			or, err := json.Marshal(k.k.plain(name))
			if err != nil {
				k.t.Fatal(err)
			}
			if !bytes.Equal(or, answer) {
				step.Or = or
			}
		}
		k.c.Steps = append(k.c.Steps, step)
	}
}

// put writes words from offset at on.
func (k *kitFile) put(about string, at int64, words ...uint64) {
	var b []byte
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	k.bytes(about, at, b)
}

func (k *kitFile) put32(about string, at int64, w uint32) {
	k.bytes(about, at, binary.LittleEndian.AppendUint32(nil, w))
}

func (k *kitFile) bytes(about string, at int64, b []byte) {
	if _, err := k.f.WriteAt(b, at); err != nil {
		k.t.Fatal(err)
	}
	k.note(about)
}

// sum corrects the checksum.
func (k *kitFile) sum() {
	head := k.read()[:hdrChecksum]
	k.put("the checksum fits", hdrChecksum, fnv64(head))
}

func (k *kitFile) truncate(about string, n int64) {
	if err := k.f.Truncate(n); err != nil {
		k.t.Fatal(err)
	}
	k.note(about)
}

// writer takes the mirror over. Each of its steps is noted, and the questions of every asked.
func (k *kitFile) writer(every ...string) *Writer {
	k.every = every
	w, err := Create(Options{Path: k.path, History: 4, CoolDown: -1, WaitGroup: -1, hook: func(step string) {
		k.note(step)
		k.ask(k.every...)
	}})
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { w.Close() })
	return w
}

func (k *kitFile) write(name string) {
	k.t.Helper()
	b, err := json.MarshalIndent(k.c, "", " ")
	if err != nil {
		k.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(kit, name+".json"), append(b, '\n'), 0o644); err != nil {
		k.t.Fatal(err)
	}
}

// entryAt returns the offset of entry i of segment 0 in the golden file, whose ring has 4 records.
func entryAt(i int64) int64 { return headerSize + 65536 + i*entrySize }

// goldenIndex returns the index of a counter of the golden file.
func goldenIndex(name string) int64 {
	for _, e := range goldenEntries {
		if e.Name == name {
			return int64(e.Handle.Index)
		}
	}
	return -1
}

// writeKit writes the kit anew.
func writeKit(t *testing.T) {
	t.Helper()
	if err := os.MkdirAll(kit, 0o755); err != nil {
		t.Fatal(err)
	}
	goldenMirror(t) // gives goldenEntries their handles
	everything := []string{"status", "list", "snapshot", "history", "find web", "load web", "find never", "load never",
		"find reused", "load reused", "find fast", "load fast", "find none", "load none"}

	k := newKitFile(t, "The golden file as it is.", "R2", "R4", "R6", "R7", "R10", "R13", "R14", "R15", "R16")
	k.ask(append([]string{"open"}, everything...)...)
	k.write("golden")

	for _, d := range []struct {
		name, about, rule string
		do                func(k *kitFile)
	}{
		{"attach-magic", "Another file.", "R2", func(k *kitFile) { k.bytes("", hdrMagic, []byte("XLOWTALY")) }},
		{"attach-not-ready", "The writer has not finished.", "R2", func(k *kitFile) { k.put32("", hdrVersion, 0) }},
		{"attach-version", "A later version.", "R2", func(k *kitFile) { k.put32("", hdrVersion, 2); k.sum() }},
		{"attach-byte-order", "Of the other byte order.", "R2", func(k *kitFile) { k.put32("", hdrByteOrder, 0x04030201); k.sum() }},
		{"attach-clock", "Another clock.", "R2", func(k *kitFile) { k.put32("", hdrClock, 2); k.sum() }},
		{"attach-header-length", "A header of 4,096 bytes.", "R2", func(k *kitFile) { k.put32("", hdrLength, 4096); k.sum() }},
		{"attach-segment-length", "Segments of another length.", "R2", func(k *kitFile) { k.put("", hdrSegmentLength, segmentSize-65536); k.sum() }},
		{"attach-incompat", "Something that must be known.", "R2", func(k *kitFile) { k.put32("", hdrIncompat, 1); k.sum() }},
		{"attach-compat", "Something that may be ignored.", "R2", func(k *kitFile) { k.put32("", hdrCompat, 1); k.sum() }},
		{"attach-history", "A ring of 3 records.", "R2", func(k *kitFile) { k.put32("", hdrHistory, 3); k.sum() }},
		{"attach-checksum", "A header that was changed.", "R2", func(k *kitFile) { k.put("", hdrCreatedWall, 1) }},
		{"attach-short", "Shorter than a header.", "R3", func(k *kitFile) { k.truncate("", 4096) }},
		{"attach-no-ring", "Without its ring.", "R3", func(k *kitFile) { k.truncate("", headerSize) }},
	} {
		k := newKitFile(t, d.about, d.rule)
		d.do(k)
		k.ask("open")
		k.write(d.name)
	}

	k = newKitFile(t, "The header is copied once: what becomes of it later changes nothing.", "R2")
	k.ask("open", "find web")
	k.bytes("the header is overwritten", 0, bytes.Repeat([]byte{0xff}, 128))
	k.ask("load web", "find dns", "load dns", "snapshot", "history")
	k.write("header-overwritten")

	k = newKitFile(t, "A segment of a kind that this version does not know.", "R4")
	k.put32("the second segment", hdrTable+segmentDescriptorSize, 3)
	k.ask("open", "snapshot", "list")
	k.write("segment-kind")

	k = newKitFile(t, "More segments than the file has.", "R3", "R4")
	k.put32("", hdrSegments, 3)
	k.put32("of blocks", hdrTable+2*segmentDescriptorSize, 1)
	k.ask("open", "find none", "snapshot")
	k.write("segment-missing")

	k = newKitFile(t, "A number of used slots that no segment has.", "R5")
	k.put32("", hdrTable+4, 1<<32-1)
	k.ask("open", "find web", "load web", "find none", "snapshot")
	k.write("high-beyond")

	k = newKitFile(t, "A counter is removed, and its slot serves another.", "R7", "R8")
	web, block := entryAt(goldenIndex("web")), entryAt(0) // web is row 0 of block 0, whose copy 0 is current
	seq := binary.LittleEndian.Uint64(k.last[block+segSeq:])
	k.ask("open", "find web", "load web")
	k.put("web is RETIRED", web, identity(entRetired, 1))
	k.ask("load web")
	k.put("its row is zero", block+segCopy0+cpyValues, 0, 0, 0)
	k.put("its block is published twice, the epoch raised", block+segSeq, nextSeq(nextSeq(seq, true), false))
	k.ask("load web")
	k.put("its slot serves another counter of that name", web, identity(entLive, 2))
	k.ask("load web", "find web", "load web")
	k.write("retired")

	k = newKitFile(t, "A name ends at its NUL, whatever follows.", "R6")
	k.bytes("behind web's name", entryAt(goldenIndex("web"))+entName+4, []byte("junk"))
	k.ask("open", "list", "find web", "load web")
	k.write("name-not-padded")

	k = newKitFile(t, "The file is given up.", "R9", "R27")
	k.ask("open", "find web", "load web")
	k.put("replaced", hdrReplaced, 7)
	k.ask("load web")
	k.put("the sequence word moves on by two", block+segSeq, nextSeq(nextSeq(seq, false), false))
	k.ask("load web", "find dns", "snapshot", "list", "history", "history")
	k.write("replaced")

	k = newKitFile(t, "A history that no writer writes.", "R16", "R17")
	k.ask("open", "history")
	k.put("the tail falls", hdrHistoryTail, 1)
	k.ask("history")
	k.write("history-falls")

	k = newKitFile(t, "A record that is not its own.", "R17")
	k.put("record 5", headerSize, 77)
	k.ask("open", "history")
	k.write("history-position")

	kitSequences(t)
}

// kitSequences records writers at work. A reader is asked after each of their steps, as after a kill there.
func kitSequences(t *testing.T) {
	begin := func(about string, rules ...string) *kitFile {
		k := newKitFile(t, about, rules...)
		k.ask("open", "find web", "load web", "find fast", "load fast")
		return k
	}
	k := begin("A writer takes the mirror over.", "R29")
	k.writer("load web", "load fast", "status")
	k.ask("list", "snapshot")
	k.write("sequence-takeover")

	k = begin("A cycle is published.", "R10", "R11", "R13", "R20", "R28")
	w := k.writer()
	k.note("the writer is there")
	k.every = []string{"load web", "load fast", "snapshot", "history"}
	w.BeginCycle()
	k.note("the cycle is begun")
	w.PublishBlock(0, &Block{patterned(50), patterned(51), patterned(52)})
	w.PublishRecord(uint32(goldenIndex("fast")), patterned(53))
	w.AppendHistory(goldenEntries[0].Handle, patterned(50))
	w.EndCycle(9000)
	k.note("the cycle is done")
	k.ask("load web", "load fast", "snapshot", "history", "status")
	k.write("sequence-cycle")

	k = begin("A counter is added.", "R22", "R25")
	w = k.writer()
	k.note("the writer is there")
	k.every = []string{"find new", "load new", "load web", "snapshot"}
	if _, err := w.Add(Entry{Name: "new", Kind: "flow"}); err != nil {
		t.Fatal(err)
	}
	k.note("done")
	k.ask("find new", "load new", "list", "status")
	k.write("sequence-add")

	k = begin("A counter is removed, and its slot serves another.", "R7", "R8", "R12", "R23")
	w = k.writer()
	k.note("the writer is there")
	k.ask("find web", "load web")
	k.every = []string{"load web", "load fast", "snapshot"}
	if err := w.Remove(goldenEntries[0].Handle); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Add(Entry{Name: "next", Kind: "flow"}); err != nil {
		t.Fatal(err)
	}
	w.BeginCycle()
	w.PublishBlock(0, &Block{patterned(60), patterned(61), patterned(62)})
	w.EndCycle(9000)
	k.note("done")
	k.ask("load web", "find next", "load next", "find web")
	k.write("sequence-reuse")

	k = newKitFile(t, "The mirror grows by a segment of records.", "R4", "R26")
	k.put32("one segment", hdrSegments, 1)
	k.put32("no records", hdrRecordsUsed, 0)
	k.put("no second segment", hdrTable+segmentDescriptorSize, 0)
	k.truncate("", entryAt(0)+segmentSize)
	k.ask("open", "find web", "load web", "find fast")
	w = k.writer()
	k.note("the writer is there")
	k.every = []string{"find fast", "load fast", "load web", "snapshot"}
	if _, err := w.Add(Entry{Name: "fast", Kind: "flow", Latency: true}); err != nil {
		t.Fatal(err)
	}
	k.note("done")
	k.ask("find fast", "load fast", "list")
	k.write("sequence-growth")

	k = begin("A counter is counted in the kernel, in another slot, elsewhere, and no more.", "L2", "L3", "L4")
	k.ask("live web")
	w = k.writer()
	k.note("the writer is there")
	k.every = []string{"live web", "load web"}
	h := goldenEntries[0].Handle
	at := entryAt(int64(h.Index)) + entLiveState
	for _, s := range []struct {
		about string
		slot  LiveSlot
	}{
		{"slot 1", LiveSlot{Map: 7, Epoch: 3, Slot: 1, BasePackets: 1000, BaseBytes: 64000}},
		{"slot 2, with a base below zero", LiveSlot{Map: 7, Epoch: 3, Slot: 2, BasePackets: 1<<64 - 300, BaseBytes: 1<<64 - 64*300}},
		{"slot 3, whose bytes have wrapped around since", LiveSlot{Map: 7, Epoch: 3, Slot: 3, BasePackets: 1000, BaseBytes: 1<<64 - 1<<56 + 64000}},
		{"a slot that the map does not have", LiveSlot{Map: 7, Epoch: 3, Slot: 4}},
		{"an earlier epoch", LiveSlot{Map: 7, Epoch: 2, Slot: 1}},
		{"another map", LiveSlot{Map: 8, Epoch: 3, Slot: 1}},
		{"elsewhere", LiveSlot{}},
		{"slot 0", LiveSlot{Map: 7, Epoch: 3, Slot: 0}},
	} {
		if err := w.SetLive(h, s.slot); err != nil {
			t.Fatal(err)
		}
		k.note(s.about)
		k.ask("live web")
	}
	k.put32("its words stay in the middle of a change, as of a writer that hangs", at+4, binary.LittleEndian.Uint32(k.last[at+4:])|1)
	k.ask("live web", "load web")
	k.put32("the change is done", at+4, binary.LittleEndian.Uint32(k.last[at+4:])+1)
	k.ask("live web")
	if err := w.Remove(h); err != nil {
		t.Fatal(err)
	}
	k.note("done")
	k.ask("live web", "find web")
	k.write("sequence-live")
}
