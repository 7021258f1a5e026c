package shm

import (
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flowtally/flowtally/internal/lab/golden"
)

var update = flag.Bool("update", false, "write testdata/v1.mirror.gz anew: only ever before version 1 is released")

const goldenPath = "testdata/v1.mirror.gz"

// goldenEntries lists the contents of the golden file.
var goldenEntries = []Entry{
	{Name: "web", Kind: "flow", Text: "ipv4 dst 192.0.2.10 tcp dport 443", Labels: map[string]string{"team": "edge", "a": "1"},
		Source: "xdp eth0 native", ByteBasis: "l2", Width: 64, Valid: true, Continuity: Continuity{7, 100, 6400, 1, 0}},
	{Name: "dns", Kind: "flow", Unit: "packets", Text: "udp dport 53", Source: "xdp eth0 native", ByteBasis: "l2", Stale: true},
	{Name: "reused", Kind: "flow", Text: "icmp", Ambiguous: true},
	{Name: "never", Kind: "completion", Text: "qp 17"},
	{Name: "fast", Kind: "flow", Text: "udp dport 9", Latency: true, Valid: true},
}

// goldenMirror makes a mirror with something in every part of the format.
func goldenMirror(t *testing.T) []byte {
	w, _ := heapMirror(t, 64, 2, 4, Options{CoolDown: -1})
	w.coolDown = 0
	var hs []Handle
	for i, e := range goldenEntries {
		if e.Name == "reused" {
			if err := w.Remove(mustAdd(t, w, Entry{Name: "removed"})); err != nil {
				t.Fatal(err)
			}
		}
		hs = append(hs, mustAdd(t, w, e))
		goldenEntries[i].Handle = hs[i]
	}
	for n := range uint64(6) {
		w.BeginCycle()
		w.PublishBlock(0, &Block{patterned(n + 10), patterned(n + 20), patterned(n + 30)})
		w.PublishRecord(hs[4].Index, patterned(n+40))
		w.AppendHistory(hs[0], patterned(n+10))
		w.EndCycle(int64(n) + 5000)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(w.heap())
}

// A file of version 1 opens for ever.
func TestMirrorOfVersion1OpensForEver(t *testing.T) {
	made := goldenMirror(t)
	if *update {
		writeGolden(t, goldenPath, made)
	}
	file := golden.Unpack(t, goldenPath)
	path := mirrorPath(t)
	if err := os.WriteFile(path, file, 0o644); err != nil {
		t.Fatal(err)
	}
	r := mustOpen(t, path)
	if ps, err := Check(path); err != nil {
		t.Error(err)
	} else {
		noProblems(t, ps)
	}
	got, err := r.Entries()
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if got[i].AddedAt == 0 {
			t.Errorf("%s has no time", got[i].Name)
		}
		got[i].AddedAt = 0
	}
	if d := cmp.Diff(goldenEntries, got); d != "" {
		t.Fatal(d)
	}
	var s Snapshot
	if err := r.Snapshot(&s); err != nil || !s.SameCycle || s.Cycle != 6 || s.Oldest != 1015 || s.Newest != 1045 {
		t.Errorf("%+v, %v", s.Label, err)
	}
	for i, want := range []Value{patterned(15), patterned(25), patterned(35), {}, patterned(45)} {
		c, err := r.Counter(goldenEntries[i].Handle)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := c.Load(); err != nil || v != want {
			t.Errorf("%s: %v, want %v, %v", goldenEntries[i].Name, v, want, err)
		}
		if v, err := s.Value(goldenEntries[i].Handle); err != nil || v != want {
			t.Errorf("%s in the snapshot: %v, want %v, %v", goldenEntries[i].Name, v, want, err)
		}
	}
	if st := r.Status(); st.State != Halt || st.Cycle != 6 || st.CountersUsed != 4 || st.RecordsUsed != 1 || st.HistoryTail != 6 {
		t.Errorf("%+v", st)
	}
	cur, err := r.History()
	if err != nil {
		t.Fatal(err)
	}
	cur.Rewind()
	recs := make([]Record, 8)
	n, lost, err := cur.Next(recs)
	if n != 4 || lost != 0 || err != nil || recs[0].Position != 3 || recs[3].Value != patterned(15) || recs[3].Cycle != 6 {
		t.Errorf("%d %d %v %+v", n, lost, err, recs[:n])
	}

	// The file that this code writes for the same life differs only in times and the generation.
	wantSame(t, file, made)
}

// wantSame compares two mirrors but for times, and for the words that are random.
func wantSame(t *testing.T, file, made []byte) {
	t.Helper()
	for _, b := range [][]byte{file, made} {
		v, err := attach(heapStore{b})
		if err != nil {
			t.Fatal(err)
		}
		err = v.eachUsed(func(_ uint32, p place) { p.entry().addedAt, p.entry().freedAt = 0, 0 })
		if err != nil {
			t.Fatal(err)
		}
		h := v.hdr
		h.createdWall, h.checksum, h.file, h.generation, h.started, h.startedWall, h.heartbeat, h.deviceGeneration = 0, 0, 0, 0, 0, 0, 0, 0
	}
	if !bytes.Equal(file, made) {
		for i := range file {
			if i >= len(made) || file[i] != made[i] {
				t.Fatalf("written otherwise from byte %d on (%d and %d bytes)", i, len(file), len(made))
			}
		}
	}
}

func writeGolden(t testing.TB, path string, b []byte) {
	t.Helper()
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err == nil {
		_, err = z.Write(b)
		err = errors.Join(err, z.Close())
	}
	if err == nil {
		err = os.WriteFile(path, packed.Bytes(), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}
