package shm

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// attachDeviceFile maps the segment as a device has it: words to write, and no mirror.
func attachDeviceFile(path string) (*deviceView, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED) // for the life of the process
	if err != nil {
		return nil, err
	}
	return attachDevice(b)
}

// deviceWriterChild sets a device's words for a counter, publishes once, and
// does nothing any more.
func deviceWriterChild(path string) error {
	w, err := Create(with(small, path))
	if err != nil {
		return err
	}
	seg, err := w.DeviceSegment(4)
	if err != nil {
		return err
	}
	h, err := w.Add(Entry{Name: "qp", Kind: "completion"})
	if err != nil {
		return err
	}
	s, err := seg.Slot()
	if err != nil {
		return err
	}
	if err := w.SetDevice(h, s, 100, 5, 255); err != nil {
		return err
	}
	w.BeginCycle()
	w.PublishBlock(0, &Block{{100, 5, Now()}})
	w.EndCycle(Now())
	fmt.Println("slot", s.number)
	time.Sleep(time.Hour) // until killed
	return nil
}

// The writer is killed. Readers can still read the words, the next writer knows their last totals, and from
// then on readers of the old words get an error.
func TestDeviceWordsOutliveTheirWriter(t *testing.T) {
	path := mirrorPath(t)
	cmd := child("device-writer", path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "slot ")))
	if err != nil {
		t.Fatal(err)
	}
	v, err := attachDeviceFile(devicePath(path))
	if err != nil {
		t.Fatal(err)
	}
	word := &v.slots[number]
	r := mustOpen(t, path)
	h, err := r.Lookup("qp")
	if err != nil {
		t.Fatal(err)
	}
	d := mustDevice(t, r, h)
	word.count(completions, 200, 255)
	wantDevice(t, d, 300, 5)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	word.count(completions, 50, 255)
	word.count(failures, 1, 255)
	wantDevice(t, d, 350, 6)
	wantDevice(t, mustDevice(t, mustOpen(t, path), h), 350, 6)
	checkFile(t, path)

	w := mustCreate(t, with(small, path))
	if comp, errs, ok := w.LastDevice(h); comp != 350 || errs != 6 || !ok {
		t.Errorf("last %d and %d, %v", comp, errs, ok)
	}
	if last, err := w.Last(h); err != nil || last.Packets != 100 {
		t.Error(last, err)
	}
	if _, _, ok := w.LastDevice(Handle{Index: h.Index, Generation: 9}); ok {
		t.Error("a counter that was never there had a device")
	}
	if _, _, err := d.Load(); !errors.Is(err, ErrNoDevice) {
		t.Error(err)
	}
	if _, err := r.Device(h); !errors.Is(err, ErrNoDevice) {
		t.Error(err)
	}
	checkFile(t, path)

	// Its own segment is another file; the words of the old slot belong to no counter.
	seg, err := w.DeviceSegment(4)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Device(h); !errors.Is(err, ErrNoDevice) {
		t.Error(err)
	}
	s := mustSlot(t, seg)
	if err := w.SetDevice(h, s, 350, 6, 255); err != nil {
		t.Fatal(err)
	}
	word.count(completions, 50, 255)
	now := mustDevice(t, r, h)
	wantDevice(t, now, 350, 6)
	s.mem().count(completions, 1, 255)
	wantDevice(t, now, 351, 6)
	if _, _, err := d.Load(); !errors.Is(err, ErrNoDevice) {
		t.Error(err)
	}
	// A file that was given up says so; a slot that another counter has since is not
	// read from its catalogue.
	if err := w.v.giveUp(5); err != nil {
		t.Fatal(err)
	}
	wantDevice(t, now, 351, 6)
	if _, err := r.Device(h); !errors.Is(err, ErrStale) {
		t.Error(err)
	}
	if err := w.Remove(h); err != nil {
		t.Fatal(err)
	}
	s.Free()
	if err := w.SetDevice(mustAdd(t, w, Entry{Name: "other"}), mustSlotNumber(t, seg, s.number), 9, 9, 255); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Device(h); !errors.Is(err, ErrGone) && !errors.Is(err, ErrStale) {
		t.Error(err)
	}
	if _, _, err := now.Load(); !errors.Is(err, ErrNoDevice) && !errors.Is(err, ErrGone) {
		t.Error(err)
	}
}

// mustSlotNumber takes slots until it has that one.
func mustSlotNumber(t testing.TB, seg *DeviceSegment, number uint32) *DeviceSlot {
	t.Helper()
	for {
		if s := mustSlot(t, seg); s.number == number {
			return s
		}
	}
}

func TestDeviceSegmentFileIsMadeOnceForItsWriter(t *testing.T) {
	path := mirrorPath(t)
	o := with(small, path)
	o.Mode = 0o640
	w := mustCreate(t, o)
	for _, n := range []int{0, -1, maxDeviceSlots + 1} {
		if _, err := w.DeviceSegment(n); !errors.Is(err, ErrInvalid) {
			t.Errorf("%d slots: %v", n, err)
		}
	}
	seg, err := w.DeviceSegment(40)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := w.DeviceSegment(7); again != seg || err != nil {
		t.Error("another segment", err)
	}
	if _, err := w.DeviceSegment(41); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
	st, err := os.Stat(filepath.Join(filepath.Dir(path), "m.device"))
	if err != nil || st.Mode().Perm() != 0o640 || st.Size() != 12288 {
		t.Error(st, err)
	}
	h := mustAdd(t, w, Entry{Name: "a"})
	s := mustSlot(t, seg)
	if err := w.SetDevice(h, s, 1, 2, 1<<64-1); err != nil {
		t.Fatal(err)
	}
	comp, _ := s.Words()
	binary.NativeEndian.PutUint64(comp, 41)
	r := mustOpen(t, path)
	wantDevice(t, mustDevice(t, r, h), 42, 2)

	// Of another writer's segment.
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := seg.Slot(); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	w2 := mustCreate(t, o)
	if err := w2.SetDevice(h, s, 1, 2, 255); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	s.Free()
	if err := w.SetDevice(h, s, 1, 2, 255); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := w.DeviceSegment(1); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// A segment that is cut short, foreign or missing is an error, not a crash, and
// the mirror itself stays usable.
func TestDamagedDeviceSegmentIsAnErrorBesideAWholeMirror(t *testing.T) {
	path := mirrorPath(t)
	w, err := Create(with(small, path))
	if err != nil {
		t.Fatal(err)
	}
	seg, err := w.DeviceSegment(40)
	if err != nil {
		t.Fatal(err)
	}
	h := mustAdd(t, w, Entry{Name: "a"})
	if err := w.SetDevice(h, mustSlotNumber(t, seg, 39), 1, 2, 255); err != nil {
		t.Fatal(err)
	}
	r := mustOpen(t, path)
	d := mustDevice(t, r, h)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	file := devicePath(path)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	put := func(b []byte) {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	changed := func(at int, b byte) []byte {
		c := append([]byte(nil), whole...)
		c[at] ^= b
		return c
	}
	for _, tt := range []struct {
		name string
		b    []byte
		want error
	}{
		{"short", whole[:100], ErrTruncated},
		{"cut", whole[:8192], ErrTruncated},
		{"magic", changed(devMagic, 1), ErrFormat},
		{"not ready", changed(devVersion, 1), ErrNotReady},
		{"other version", changed(devVersion, 2), ErrFormat},
		{"byte order", changed(devByteOrder, 1), ErrFormat},
		{"slot length", changed(devSlotLength, 1), ErrFormat},
		{"checksum", changed(devCreatedWall, 1), ErrFormat},
		{"another mirror's", rechecksummed(changed(devGeneration, 1)), ErrNoDevice},
		{"more slots", rechecksummed(changed(devSlots, 64)), ErrFormat},
		{"no generation", func() []byte {
			b := changed(0, 0)
			clear(b[devGeneration : devGeneration+8])
			return rechecksummed(b)
		}(), ErrFormat},
	} {
		put(tt.b)
		r := mustOpen(t, path)
		if _, err := r.Device(h); !errors.Is(err, tt.want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if ps, err := Check(path); err != nil || len(ps) != 1 || ps[0].Object != "device segment" {
			t.Errorf("%s: check says %v, %v", tt.name, ps, err)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := mustOpen(t, path).Device(h); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if ps, err := Check(path); err != nil || len(ps) != 1 {
		t.Error(ps, err)
	}
	wantDevice(t, d, 1, 2) // it has the file that was removed
	c := mustCounter(t, r, h)
	if _, err := c.Load(); err != nil {
		t.Error(err)
	}

	// Truncated under a reader.
	put(whole)
	r = mustOpen(t, path)
	d = mustDevice(t, r, h)
	if err := os.Truncate(file, 4096); err != nil {
		t.Fatal(err)
	}
	needFaultAddress(t)
	if err := Guard(func() error { _, _, err := d.Load(); return err }); !errors.Is(err, ErrTruncated) {
		t.Error(err)
	}
	if _, err := r.Device(h); !errors.Is(err, ErrTruncated) {
		t.Error(err)
	}
	// A writer takes over all the same.
	w = mustCreate(t, with(small, path))
	if _, err := w.DeviceSegment(2); err != nil {
		t.Error(err)
	}
}
