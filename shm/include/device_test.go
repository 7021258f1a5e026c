package include

import (
	"bufio"
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/shm"
)

// A device, written in C and with nothing but the segment, counts in words. A
// reader in C finds them through the catalogue, and must read exact totals over
// wraps while the mirror grows, the same as Go.
func TestCReadsDeviceWordsExactly(t *testing.T) {
	const ops, limit, base, growths = 100_000, 999, 1 << 40, 3
	program := sanitized(t, "device")
	path, w := newMirror(t, shm.Options{History: 16})
	seg, err := w.DeviceSegment(2)
	if err != nil {
		t.Fatal(err)
	}
	s, err := seg.Slot()
	if err != nil {
		t.Fatal(err)
	}
	h := add(t, w, shm.Entry{Name: "qp", Kind: "completion", Latency: true})
	if err := w.SetDevice(h, s, base, 0, limit); err != nil {
		t.Fatal(err)
	}
	reader := exec.CommandContext(t.Context(), program, "read", path, fmt.Sprint(ops), fmt.Sprint(base))
	device := exec.CommandContext(t.Context(), program, "count", strings.TrimSuffix(path, ".mirror")+".device", fmt.Sprint(ops), fmt.Sprint(limit))
	var wrong, deviceWrong bytes.Buffer
	reader.Stderr, device.Stderr = &wrong, &deviceWrong
	out, err := reader.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := reader.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	// Every growth is seen before the next one.
	await := func(segments int) {
		t.Helper()
		lines.Scan()
		if want := fmt.Sprint("segments ", segments); lines.Text() != want {
			t.Fatalf("the reader says %q, want %q: %v\n%s", lines.Text(), want, reader.Wait(), &wrong)
		}
	}
	await(2) // the one of counters that a mirror begins with, and the one of the queue pair
	if err := device.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- device.Wait() }()
	for grown, done := 0, false; !done; time.Sleep(50 * time.Microsecond) {
		comp, errs, err := s.Rebase()
		if err != nil {
			t.Fatal(err)
		}
		done = comp == base+ops && errs == ops/16
		if grown < growths && comp-base > uint64(grown+1)*ops/(growths+1) {
			grown++
			for i := range shm.SegmentLen {
				add(t, w, shm.Entry{Name: fmt.Sprintf("more %d %d", grown, i), Latency: true})
			}
			await(2 + grown)
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("the device: %v\n%s", err, &deviceWrong)
			}
		default:
		}
	}
	lines.Scan()
	last := lines.Text()
	if err := reader.Wait(); err != nil || !strings.HasPrefix(last, "loads ") {
		t.Fatalf("the reader ends with %q, %v\n%s", last, err, &wrong)
	}
	r, err := shm.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	d, err := r.Device(h)
	if err != nil {
		t.Fatal(err)
	}
	if comp, errs, err := d.Load(); comp != base+ops || errs != ops/16 || err != nil {
		t.Errorf("Go reads %d and %d, %v", comp, errs, err)
	}
	t.Logf("%d completions, %d wraps, %d segments more: %s, all exact", ops, ops/(limit+1), growths, last)
}
