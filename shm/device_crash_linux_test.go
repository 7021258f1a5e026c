package shm

import (
	"encoding/binary"
	"errors"
	"testing"
)

// deviceTotals returns the totals of the devices' words in script, at every step.
var deviceTotals = map[string][2]uint64{"a": {1000, 10}, "b": {2000, 20}, "l": {3000, 30}}

// useDevices sets, moves and takes away words of devices, for TestWriterKilledAtAnyStepLeavesAWholeMirror.
func useDevices(w *Writer, handles map[string]Handle) error {
	seg, err := w.DeviceSegment(4)
	if err != nil {
		return err
	}
	slots := make([]*DeviceSlot, 4)
	for i := range slots {
		s, serr := seg.Slot()
		if err = errors.Join(err, serr); err != nil {
			return err
		}
		comp, errs := s.Words()
		binary.NativeEndian.PutUint64(comp, uint64(i))
		binary.NativeEndian.PutUint64(errs, uint64(200+i))
		slots[i] = s
	}
	for _, set := range []struct {
		name string
		slot int
	}{{"a", 0}, {"b", 1}, {"l", 2}, {"a", 3}, {"b", 0}, {"b", 0}} { // b gets the words that a had, and twice
		total := deviceTotals[set.name]
		err = errors.Join(err, w.SetDevice(handles[set.name], slots[set.slot], total[0], total[1], 255))
	}
	slots[1].Free()
	return errors.Join(err, w.ClearDevice(handles["l"]))
}

// devicesOf resolves the slots that the entries name at the moment of the kill. Each device shows its
// counter's own totals, or the counter has no device.
func devicesOf(t *testing.T, r *Reader, es []Entry, all bool) (held []*Device) {
	t.Helper()
	for _, e := range es {
		d, err := r.Device(e.Handle)
		switch {
		case errors.Is(err, ErrNoDevice) && (!all || e.Name != "a"):
			continue
		case err != nil:
			t.Errorf("device of %s: %v", e.Name, err)
			continue
		}
		held = append(held, &d)
		want := deviceTotals[e.Name]
		wantDevice(t, &d, want[0], want[1])
	}
	return held
}

// devicesEnded holds the next writer to its duties towards readers of a device's words.
func devicesEnded(t *testing.T, w *Writer, held []*Device) {
	t.Helper()
	for _, d := range held {
		if _, _, err := d.Load(); !errors.Is(err, ErrNoDevice) && !errors.Is(err, ErrGone) {
			t.Errorf("device of %v after the takeover: %v", d.Handle(), err)
		}
	}
	for _, e := range w.Entries() {
		if comp, errs, ok := w.LastDevice(e.Handle); ok && [2]uint64{comp, errs} != deviceTotals[e.Name] {
			t.Errorf("%s was last at %d and %d", e.Name, comp, errs)
		}
		if w.v.slot(e.Handle.Index).entry().slots[w.v.slot(e.Handle.Index).entry().seq&1].device != 0 {
			t.Errorf("%s still names a device's words", e.Name)
		}
	}
}
