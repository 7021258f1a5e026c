package shm

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/seed"

	"github.com/flowtally/flowtally/shm/words"
)

// small has a writer that is alive however late a test looks.
var small = Options{Counters: 64, LatencyCounters: 2, History: 8, CoolDown: -1, HeartbeatPeriod: patience}

func with(o Options, path string) Options { o.Path = path; return o }

func TestNextWriterTakesOverCountersAndTotals(t *testing.T) {
	o := with(small, mirrorPath(t))
	w := mustCreate(t, o)
	hs := append(addN(t, w, 3, false), addN(t, w, 1, true)...)
	if err := w.SetContinuity(hs[1], Continuity{Cookie: 9, BasePackets: 8}); err != nil {
		t.Fatal(err)
	}
	r := mustOpen(t, o.Path)
	c := mustCounter(t, r, hs[1])
	for n := range uint64(20) {
		w.BeginCycle()
		w.PublishBlock(0, &Block{{n, n, 1}, {2 * n, n, 2}})
		w.PublishRecord(hs[3].Index, Value{3 * n, n, 3})
		w.AppendHistory(hs[0], Value{n, n, int64(n)})
		w.EndCycle(Now())
	}
	if err := w.Remove(hs[2]); err != nil {
		t.Fatal(err)
	}
	entries, generation := w.Entries(), w.Generation()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	w = mustCreate(t, o)
	if d := cmp.Diff(entries, w.Entries()); d != "" {
		t.Error(d)
	}
	if w.Generation() == generation {
		t.Error("generation did not change")
	}
	if v, err := w.Last(hs[1]); err != nil || v != (Value{38, 19, 2}) {
		t.Error(v, err)
	}
	if v, err := w.Last(hs[3]); err != nil || v != (Value{57, 19, 3}) {
		t.Error(v, err)
	}
	if _, err := w.Last(hs[2]); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	if n := w.BeginCycle(); n != 21 {
		t.Errorf("cycle %d, want 21", n)
	}
	w.PublishBlock(0, &Block{{20, 20, 1}, {40, 20, 2}})
	w.EndCycle(Now())
	// The reader of before goes on, and sees that the writer is another.
	if v, err := c.Load(); err != nil || v.Packets != 40 {
		t.Error(v, err)
	}
	if s := r.Status(); s.Generation != w.Generation() || s.Takeovers != 1 || !s.Alive {
		t.Errorf("%+v", s)
	}
	if h := mustAdd(t, w, Entry{Name: "again"}); h.Index != hs[2].Index || h.Generation != 2 {
		t.Errorf("reused slot %v", h)
	}
	cur, err := r.History()
	if err != nil {
		t.Fatal(err)
	}
	cur.Rewind()
	recs := make([]Record, 20)
	n, lost, err := cur.Next(recs)
	if n != 8 || lost != 0 || err != nil || recs[0].Position != 13 || recs[7].Value.Packets != 19 {
		t.Errorf("%d %d %v %+v", n, lost, err, recs[:n])
	}
}

func TestSecondWriterIsRefused(t *testing.T) {
	o := with(small, mirrorPath(t))
	w := mustCreate(t, o)
	_, err := Create(o)
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), o.Path) {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, o)
}

// Reader and writer refuse a file that is no mirror, and leave it as it is.
func TestForeignFilesAreRefusedAndStay(t *testing.T) {
	valid := func(t *testing.T) []byte {
		w, _ := heapMirror(t, 64, 1, 4, Options{})
		mustAdd(t, w, Entry{Name: "a"})
		return bytes.Clone(w.heap())
	}
	for _, tt := range []struct {
		name   string
		make   func(t *testing.T) []byte
		mirror bool // it may have been one
		want   error
	}{
		{"empty", func(t *testing.T) []byte { return nil }, false, ErrTruncated},
		{"short", func(t *testing.T) []byte { return valid(t)[:100] }, false, ErrTruncated},
		{"truncated in the ring", func(t *testing.T) []byte { return valid(t)[:headerSize+4096] }, true, ErrTruncated},
		{"random", func(t *testing.T) []byte {
			b := make([]byte, 100000)
			rnd := seed.Rand(t)
			for i := range b {
				b[i] = byte(rnd.Uint32())
			}
			return b
		}, false, ErrFormat},
		{"not ready", func(t *testing.T) []byte { b := valid(t); clear(b[8:12]); return b }, true, ErrNotReady},
		{"other version", func(t *testing.T) []byte { b := valid(t); b[8] = 2; return b }, true, ErrFormat},
		{"other byte order", func(t *testing.T) []byte { b := valid(t); copy(b[12:], []byte{1, 2, 3, 4}); return b }, true, ErrFormat},
		{"checksum", func(t *testing.T) []byte { b := valid(t); b[hdrCreatedWall]++; return b }, true, ErrFormat},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := mirrorPath(t)
			want := tt.make(t)
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
			_, rerr := OpenReader(path, ReaderOptions{})
			_, werr := Create(with(small, path))
			for _, err := range []error{rerr, werr} {
				if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), path) {
					t.Errorf("%v, want %v", err, tt.want)
				}
			}
			if ps, err := Check(path); err != nil || len(ps) == 0 {
				t.Errorf("check: %v, %v", ps, err)
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != string(want) {
				t.Error("the file was changed", err)
			}
			// The lock of a file that never was a mirror might be another program's.
			if beside, err := os.ReadDir(filepath.Dir(path)); !tt.mirror && (err != nil || len(beside) != 1) {
				t.Errorf("%v stand there, %v", beside, err)
			}
			o := with(small, path)
			o.Replace = true
			mustCreate(t, o)
		})
	}
	t.Run("truncated in a segment", func(t *testing.T) { // found when the segment is met
		path := mirrorPath(t)
		if err := os.WriteFile(path, valid(t)[:segmentOffset(4, 0)+8192], 0o644); err != nil {
			t.Fatal(err)
		}
		r := mustOpen(t, path)
		if _, err := r.Lookup("a"); !errors.Is(err, ErrTruncated) {
			t.Error(err)
		}
		if _, err := Create(with(small, path)); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "bytes are there") {
			t.Error(err)
		}
		if ps, err := Check(path); err != nil || len(ps) == 0 {
			t.Errorf("check: %v, %v", ps, err)
		}
	})
	t.Run("broken invariant", func(t *testing.T) {
		path := mirrorPath(t)
		b := valid(t)
		b[segmentOffset(4, 0)+entName] = 0
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Create(with(small, path)); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "name is empty") {
			t.Error(err)
		}
	})
}

func TestUnsafePlacesAreRefused(t *testing.T) {
	path := mirrorPath(t)
	dir := filepath.Dir(path)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(with(small, path)); !errors.Is(err, ErrPermission) {
		t.Errorf("world-writable directory: %v", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(with(small, filepath.Join(link, "m.mirror"))); !errors.Is(err, ErrPermission) {
		t.Errorf("directory is a link: %v", err)
	}
	mustCreate(t, with(small, path))
	if err := os.Symlink(path, filepath.Join(dir, "l.mirror")); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenReader(filepath.Join(dir, "l.mirror"), ReaderOptions{}); !errors.Is(err, unix.ELOOP) {
		t.Errorf("file is a link: %v", err)
	}
	fifo := filepath.Join(dir, "f.mirror")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenReader(fifo, ReaderOptions{}); !errors.Is(err, ErrFormat) {
		t.Errorf("FIFO: %v", err)
	}
	if _, err := OpenReader(filepath.Join(dir, "none"), ReaderOptions{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := os.Chown(path, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenReader(path, ReaderOptions{}); !errors.Is(err, ErrPermission) {
		t.Errorf("somebody else's file: %v", err)
	}
	if r, err := OpenReader(path, ReaderOptions{Owners: []uint32{12345}}); err != nil {
		t.Errorf("trusted owner: %v", err)
	} else {
		r.Close()
	}
	if err := os.Chown(dir, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(with(small, path)); !errors.Is(err, ErrPermission) {
		t.Errorf("somebody else's directory: %v", err)
	}
}

func TestDirectoryIsMade(t *testing.T) {
	path := filepath.Join(filepath.Dir(mirrorPath(t)), "new", "m.mirror")
	mustCreate(t, with(small, path))
	if st, err := os.Stat(filepath.Dir(path)); err != nil || st.Mode().Perm() != 0o755 {
		t.Fatal(st, err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o644 {
		t.Fatal(st, err)
	}
}

// A full file system is an error that names the next step, and leaves nothing behind.
func TestFullFileSystemLeavesNothingBehind(t *testing.T) {
	dir := filepath.Dir(mirrorPath(t))
	need.Cap(t, "sys_admin")
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=6m,mode=0755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	path := filepath.Join(dir, "below", "m.mirror") // the file system is named, not the directory
	o := with(Options{}, path)
	_, err := Create(o)
	if !errors.Is(err, ErrFull) || !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), path) ||
		!strings.Contains(err.Error(), "free space on "+dir+", enlarge it (mount -o remount,size=… "+dir+")") {
		t.Fatal(err)
	}
	t.Log(err)
	if m, _ := filepath.Glob(filepath.Join(dir, ".*")); len(m) != 0 {
		t.Errorf("left behind: %v", m)
	}
	mustAdd(t, mustCreate(t, with(small, path)), Entry{Name: "a"})
}

// A file that is cut short under a reader is an error, not a crash.
func TestTruncationUnderAReaderIsAnError(t *testing.T) {
	needFaultAddress(t)
	path := mirrorPath(t)
	o := with(small, path)
	w, err := Create(o)
	if err != nil {
		t.Fatal(err)
	}
	h := mustAdd(t, w, Entry{Name: "a"})
	w.BeginCycle()
	w.PublishBlock(0, &Block{{1, 1, 1}})
	w.AppendHistory(h, Value{1, 1, 1})
	w.EndCycle(Now())
	r := mustOpen(t, path)
	c := mustCounter(t, r, h)
	cur, err := r.History()
	if err != nil {
		t.Fatal(err)
	}
	cur.Rewind()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var s, whole Snapshot
	if err := r.Snapshot(&whole); err != nil {
		t.Fatal(err)
	}
	late := mustOpen(t, path)
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	_, lateErr := late.Lookup("a") // the segment is gone, and the header's second page
	_, verr := whole.Value(h)
	_, ferr := r.Find("a")
	_, enerr := r.Entry(h)
	_, lerr := r.Lookup("a")
	_, eerr := r.Entries()
	_, cerr := r.Counter(h)
	_, _, nerr := cur.Next(make([]Record, 1))
	for what, err := range map[string]error{
		"Lookup":         lerr,
		"Entries":        eerr,
		"Counter":        cerr,
		"Next":           nerr,
		"Value":          verr,
		"Find":           ferr,
		"Entry":          enerr,
		"not yet mapped": lateErr,
		"Snapshot":       r.Snapshot(&s),
		"Load":           Guard(func() error { _, err := c.Load(); return err }),
	} {
		if !errors.Is(err, ErrTruncated) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	r.Status()
	if ps, err := Check(path); err != nil || len(ps) == 0 {
		t.Error(ps, err)
	}
}

// Files lists exactly the files of a writer with a device segment, a live view and reserved words.
func TestFilesNamesEveryFileOfAWriter(t *testing.T) {
	o := with(small, mirrorPath(t))
	w := mustCreate(t, o)
	if _, err := w.DeviceSegment(4); err != nil {
		t.Fatal(err)
	}
	for _, socket := range []string{LivePath(o.Path), words.Path(o.Path)} { // a file takes the place of each
		if err := os.WriteFile(socket, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(o.Path), "*"))
	if err != nil {
		t.Fatal(err)
	}
	files := Files(o.Path)
	if files[0] != o.Path {
		t.Errorf("first %s, want the mirror", files[0])
	}
	slices.Sort(files)
	if diff := cmp.Diff(left, files); diff != "" {
		t.Errorf("the directory (-), Files (+):\n%s", diff)
	}
}

// Discard removes the files that Create made, and no others.
func TestDiscardRemovesOnlyWhatCreateMade(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "m")
	o := Options{Path: filepath.Join(dir, "x.mirror"), LatencyCounters: -1, History: -1}
	create := func(o Options) *Writer {
		t.Helper()
		w, err := Create(o)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	discard := func(w *Writer) {
		t.Helper()
		if err := errors.Join(w.Discard(), w.Discard(), w.Close()); err != nil {
			t.Fatal(err)
		}
	}
	discard(create(o))
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory: %v", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	discard(create(o))
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("in a directory that was there: %v, %v", left, err)
	}
	w := create(o)
	if _, err := w.Add(Entry{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	discard(create(o))
	r, err := OpenReader(o.Path, ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Lookup("a"); err != nil {
		t.Errorf("the counter of a mirror that was taken over: %v", err)
	}
}
