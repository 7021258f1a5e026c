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
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What the processes of TestDeviceWordsWhileTheMirrorGrows agree on.
const (
	deviceOps   = 400_000 // completions; one in 16 is an error too
	deviceLimit = 4095    // largest value of the words: they come round 97 times
	deviceBase  = 1 << 40
	growths     = 4
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

// deviceChild is the device: it counts in the words of slot 0 and knows nothing
// else. Behind each it notes in slot 1, which serves no counter, how far it is.
// A device's poller is faster than its words; here that is made so, by waiting
// for what the writer has seen.
func deviceChild(path string) error {
	v, err := attachDeviceFile(devicePath(path))
	if err != nil {
		return err
	}
	s, truth := &v.slots[0], &v.slots[1]
	for n := uint64(1); n <= deviceOps; n++ {
		for deviceBase+n-atomic.LoadUint64(&s.seen[completions]) > deviceLimit/2 {
			time.Sleep(20 * time.Microsecond)
		}
		s.count(completions, 1, deviceLimit)
		atomic.StoreUint64(&truth.words[completions], n)
		if n%16 == 0 {
			s.count(failures, 1, deviceLimit)
			atomic.StoreUint64(&truth.words[failures], n/16)
		}
	}
	return nil
}

// bracket loads d between two looks at how far the device is.
func bracket(d *Device, truth *deviceSlotMem) (comp uint64, err error) {
	var low, high [2]uint64
	for i := range low {
		low[i] = atomic.LoadUint64(&truth.words[i])
	}
	comp, errs, err := d.Load()
	for i := range high {
		high[i] = atomic.LoadUint64(&truth.words[i]) + 1 // counted, and not noted yet
	}
	if err != nil {
		return 0, err
	}
	comp -= deviceBase
	if comp < low[0] || comp > high[0] || errs < low[1] || errs > high[1] {
		return 0, fmt.Errorf("read %d and %d, the device was between %d and %d", comp, errs, low, high)
	}
	return comp, nil
}

// deviceReaderChild reads through the catalogue and follows the mirror, until
// the device has counted all. The Device of the first file goes on being read.
func deviceReaderChild(path string) error {
	v, err := attachDeviceFile(devicePath(path))
	if err != nil {
		return err
	}
	truth := &v.slots[1]
	r, err := Open(path, ReaderOptions{})
	if err != nil {
		return err
	}
	var first, d *Device
	loads := 0
	for {
		h, err := r.Lookup("qp")
		if err != nil {
			return err
		}
		found, err := r.Device(h)
		if errors.Is(err, ErrSuperseded) { // before the new file has the name
			if r, err = r.Follow(); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		row, err := r.Counter(h)
		if err != nil {
			return err
		}
		if d = &found; first == nil {
			first = d
		}
		fmt.Println("file", r.Status().Generation)
		for next := r; next == r; {
			for range 64 {
				polled, err := row.Load()
				if err != nil {
					return err
				}
				comp, err := bracket(d, truth)
				if err != nil {
					return err
				}
				if polled.SampledAt != 0 && polled.Packets > comp+deviceBase {
					return fmt.Errorf("the row shows %d, before the device's word did: %d", polled.Packets, comp+deviceBase)
				}
				if _, err := bracket(first, truth); err != nil {
					return fmt.Errorf("the first device: %w", err)
				}
				if loads++; comp == deviceOps {
					fmt.Println("loads", loads)
					return nil
				}
			}
			if next, err = r.Follow(); err != nil {
				return err
			}
		}
		if r, err = r.Follow(); err != nil {
			return err
		}
	}
}

func init() {
	for name, run := range map[string]func(string) error{
		"device": deviceChild, "device-reader": deviceReaderChild, "device-writer": deviceWriterChild,
	} {
		children[name] = func() {
			if err := run(os.Getenv("FLOWTALLY_SHM_PATH")); err != nil {
				fmt.Fprintln(os.Stderr, name+":", err)
				os.Exit(1)
			}
		}
	}
}

// A device, which is another process and has only the segment, counts in words
// that a third process reads through the catalogue: what it reads is exact at
// every moment, over wraps, while the mirror is replaced by larger ones and the
// writer does nothing but to look at the words before they come round.
func TestDeviceWordsWhileTheMirrorGrows(t *testing.T) {
	path := mirrorPath(t)
	w := mustCreate(t, with(small, path))
	seg, err := w.DeviceSegment(2)
	if err != nil {
		t.Fatal(err)
	}
	h := mustAdd(t, w, Entry{Name: "qp", Kind: "completion", Latency: true})
	s := mustSlot(t, seg)
	if err := w.SetDevice(h, s, deviceBase, 0, deviceLimit); err != nil {
		t.Fatal(err)
	}
	reader, device := child("device-reader", path), child("device", path)
	out, err := reader.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	said := make(chan string, growths+2)
	if err := reader.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(said)
		for sc := bufio.NewScanner(out); sc.Scan(); {
			said <- sc.Text()
		}
	}()
	t.Cleanup(func() { _ = reader.Process.Kill() })
	// Every file is seen before the next one comes.
	await := func() {
		t.Helper()
		if line, want := <-said, fmt.Sprint("file ", w.Generation()); line != want {
			t.Fatalf("the reader says %q, want %q", line, want)
		}
	}
	await()
	if err := device.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = device.Process.Kill() })
	ended := make(chan error, 1)
	go func() { ended <- device.Wait() }()
	grown := 0
	for done := false; !done; time.Sleep(50 * time.Microsecond) {
		comp, errs, err := s.Rebase()
		if err != nil {
			t.Fatal(err)
		}
		w.BeginCycle()
		w.PublishRecord(h.Index, Value{comp, errs, Now()})
		w.EndCycle(Now())
		done = comp == deviceBase+deviceOps && errs == deviceOps/16
		if n := comp - deviceBase; grown < growths && n > uint64(grown+1)*deviceOps/(growths+1) {
			h = mustGrow(t, w, 64*(grown+2), 3+grown).Handle(h)
			grown++
			await()
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Fatal("the device: ", err)
			}
		default:
		}
	}
	last := <-said
	if err := reader.Wait(); err != nil || grown != growths || !strings.HasPrefix(last, "loads ") {
		t.Fatalf("the reader ends with %q after %d growths, %v", last, grown, err)
	}
	if word := s.mem().words[0]; word != deviceOps%(deviceLimit+1) {
		t.Errorf("the word ends at %d", word)
	}
	t.Logf("%d completions, %d wraps, %d larger files: %s, all exact", deviceOps, deviceOps/(deviceLimit+1), grown, last)
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

// The writer is killed: readers go on reading the words, the next writer knows
// their last totals, and who still reads them is told that they stand still.
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

	// Its own segment is another file; the old one's words are nobody's.
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
	g := mustGrow(t, w, 128, 5)
	if comp, _, ok := w.LastDevice(g.Handle(h)); comp != 350 || !ok {
		t.Error("the last totals are gone")
	}
	wantDevice(t, now, 351, 6)
	if _, err := r.Device(h); !errors.Is(err, ErrSuperseded) {
		t.Error(err)
	}

	// A slot that another counter has since is not read from the old catalogue.
	if err := w.Remove(h); err != nil {
		t.Fatal(err)
	}
	s.Free()
	if err := w.SetDevice(mustAdd(t, w, Entry{Name: "other"}), mustSlotNumber(t, seg, s.number), 9, 9, 255); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Device(h); !errors.Is(err, ErrSuperseded) {
		t.Error(err)
	}
	if _, _, err := now.Load(); !errors.Is(err, ErrNoDevice) {
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

func TestDeviceSegmentFile(t *testing.T) {
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

// A segment that is cut short, foreign or gone is an error, not a crash; the
// mirror beside it goes on.
func TestDamagedDeviceSegment(t *testing.T) {
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
	if os.Getenv(emulator) != "" {
		t.Skip("the emulator does not tell the address of a fault")
	}
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

// rechecksummed makes the checksum of a segment right again.
func rechecksummed(b []byte) []byte {
	binary.NativeEndian.PutUint64(b[devChecksum:], fnv64(b[:devChecksum]))
	return b
}
