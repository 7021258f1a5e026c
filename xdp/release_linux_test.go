package xdp

import (
	"errors"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flowtally/flowtally/internal/lab"
)

// pinnedSet leaves a rule set pinned, with a program on the near end of a wire.
func pinnedSet(t *testing.T, rules int) (dir string, w *lab.Wire) {
	t.Helper()
	w, dir = testWire(t), pinDir(t)
	dp, err := Open(Options{MaxRules: 4096, PinDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	id := mustCounter(t, dp, "a")
	for n := range rules {
		mustAdd(t, dp, exact4(uint32(n), 1, 2, 3, id))
	}
	attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})
	if err := dp.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, w
}

// holdsProgram reports whether a program is on the XDP hook.
func holdsProgram(t *testing.T, w *lab.Wire) (is bool) {
	t.Helper()
	err := w.Near.NS.Do(func() error {
		_, dev, err := interfaceByName(w.Near.Name)
		is = dev.program != 0 || dev.several
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return is
}

// Release must not read any rule, so it takes less than a second even for many.
func TestReleaseRemovesProgramsAndPinsByPath(t *testing.T) {
	dir, w := pinnedSet(t, 4000)
	began := time.Now()
	done, err := Release(dir, ReleaseOptions{})
	if err != nil || done.Programs != 1 || done.Pins != 8 {
		t.Errorf("released %+v, %v; want 1 program and 8 pins", done, err)
	}
	t.Logf("it took %v", time.Since(began))
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) || holdsProgram(t, w) {
		t.Errorf("directory: %v, program attached: %v", err, holdsProgram(t, w))
	}
	if done, err := Release(dir, ReleaseOptions{}); err != nil || done != (Released{}) {
		t.Errorf("without a directory: %+v, %v", done, err)
	}
}

// Release leaves a running process alone, except with Held. Then the process attaches nothing until the next Open, and not even then
// if that one asks for StayDetached.
func TestReleaseRespectsTheLock(t *testing.T) {
	dir, w := pinnedSet(t, 1)
	dp, err := Open(Options{MaxRules: 4096, PinDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Release(dir, ReleaseOptions{}); !errors.Is(err, ErrInUse) || !holdsProgram(t, w) {
		t.Errorf("a set in use: %v, program attached: %v", err, holdsProgram(t, w))
	}
	if done, err := Release(dir, ReleaseOptions{Held: true}); err != nil || done.Programs != 1 || holdsProgram(t, w) {
		t.Errorf("with Held: %+v, %v, program attached: %v", done, err, holdsProgram(t, w))
	}
	take := func(dp *Datapath) error {
		return w.Near.NS.Do(func() error {
			_, err := dp.Attach(w.Near.Name, AttachOptions{Mode: ModeNative, Ingress: true})
			return err
		})
	}
	if err := take(dp); !errors.Is(err, ErrDetached) {
		t.Errorf("taking the hook again: %v, want ErrDetached", err)
	}
	for _, stays := range []bool{true, false} {
		if err := dp.Close(); err != nil {
			t.Fatal(err)
		}
		if dp, err = Open(Options{MaxRules: 4096, PinDir: dir, StayDetached: stays}); err != nil {
			t.Fatal(err)
		}
		if err := take(dp); errors.Is(err, ErrDetached) != stays || holdsProgram(t, w) == stays {
			t.Errorf("after an Open with StayDetached %v: %v, program attached: %v", stays, err, holdsProgram(t, w))
		}
	}
	if err := dp.Destroy(); err != nil {
		t.Error(err)
	}
}

func TestReleaseKeepsNamedPins(t *testing.T) {
	dir, w := pinnedSet(t, 1)
	before, err := PinsIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	done, err := Release(dir, ReleaseOptions{Keep: before})
	after, _ := PinsIn(dir)
	if err != nil || done != (Released{}) || !slices.Equal(before, after) || !holdsProgram(t, w) {
		t.Errorf("released %+v, %v; pins %v, were %v; program attached: %v", done, err, after, before, holdsProgram(t, w))
	}
	if _, err := Release(dir, ReleaseOptions{}); err != nil {
		t.Error(err)
	}
}

// Whatever makes Open fail, programs of another build are exchanged or detached. Programs of this build stay.
func TestAFailedStartLeavesNoProgramOfAnotherBuild(t *testing.T) {
	for _, other := range []bool{false, true} {
		dir, w := pinnedSet(t, 1)
		if other {
			rewriteObject(t, dir, objectHash()+2)
		}
		if is, err := OtherBuild(dir); err != nil || is != other {
			t.Errorf("another build: %v, %v; want %v", is, err, other)
		}
		_, err := Open(Options{MaxRules: 1 << 17, PinDir: dir}) // more than the pins hold
		if !errors.Is(err, ErrIncompatible) {
			t.Fatalf("Open: %v, want ErrIncompatible", err)
		}
		if holdsProgram(t, w) == other {
			t.Errorf("another build: %v; after a failed start a program is attached: %v", other, holdsProgram(t, w))
		}
		dp, err := Open(Options{MaxRules: 4096, PinDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if len(dp.Counters()) != 1 {
			t.Errorf("another build: %v; the next start finds %d counters, want 1", other, len(dp.Counters()))
		}
		if err := dp.Destroy(); err != nil {
			t.Error(err)
		}
	}
}

// rewriteObject makes pins those of a build whose object has that hash.
func rewriteObject(t *testing.T, dir string, object uint64) {
	t.Helper()
	m := newMaps()
	g, err := m.adopt(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	atomic.StoreUint64(&metaOf(m.meta.words, g).loaded[0], object)
	if err := m.close(); err != nil {
		t.Fatal(err)
	}
}
