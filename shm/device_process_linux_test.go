package shm

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Constants of the processes of TestDeviceWordsStayExactWhileTheMirrorGrows.
const (
	deviceOps   = 400_000 // completions; one in 16 is an error too
	deviceLimit = 4095    // largest value of the words: they come round 97 times
	deviceBase  = 1 << 40
	growths     = 4
)

// deviceChild is the device: it counts in the words of slot 0 and knows nothing else. Behind each it
// notes in slot 1, which serves no counter, how far it is. A device's poller is faster than its words;
// here that is made so, by waiting for the writer's seen word.
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

// deviceReaderChild reads through the catalogue, with one reader, until the device has
// counted all. It resolves the Device anew whenever a segment came; the first one goes on
// being read.
func deviceReaderChild(path string) error {
	v, err := attachDeviceFile(devicePath(path))
	if err != nil {
		return err
	}
	truth := &v.slots[1]
	r, err := OpenReader(path, ReaderOptions{})
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
		grown := r.Status().Counters
		fmt.Println("counters", grown)
		for r.Status().Counters == grown {
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

// A device (another process, which has only the segment) counts in words, and a third process reads them
// through the catalogue. Each total must be exact over wraps, while the mirror grows and the writer only
// calls Rebase in time.
func TestDeviceWordsStayExactWhileTheMirrorGrows(t *testing.T) {
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
	// Every segment is seen before the next one comes.
	await := func() {
		t.Helper()
		if line, want := <-said, fmt.Sprint("counters ", w.v.declared()*SegmentLen-SegmentLen); line != want {
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
			mustGrow(t, w, classCounters)
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
	t.Logf("%d completions, %d wraps, %d growths: %s, all exact", deviceOps, deviceOps/(deviceLimit+1), grown, last)
}
