package xdp

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// The epoch of the counters rises with each process that opens the map, and at no other time. Counts go on.
func TestEpochRisesWithEachOpening(t *testing.T) {
	need.BPF(t)
	dir := pinDir(t)
	o := Options{PinDir: dir, MaxRules: 64}
	var last LiveMap
	for i := range 3 {
		dp, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		m, err := dp.LiveMap()
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && (m.ID != last.ID || m.Epoch != last.Epoch+1) {
			t.Errorf("opening %d: map %d in epoch %d, before it was map %d in epoch %d", i, m.ID, m.Epoch, last.ID, last.Epoch)
		}
		if m.Epoch == 0 || m.Counters != 64 || m.CPUs != dp.g.cpus || m.Stride != dp.g.block {
			t.Errorf("opening %d: %+v", i, m)
		}
		c, err := dp.AllocCounter("a")
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := dp.LiveMap(); again.Epoch != m.Epoch {
			t.Errorf("a counter moved the epoch from %d to %d", m.Epoch, again.Epoch)
		}
		if p, err := dp.values.raw(c.ID); err != nil || p != (sums{}) || dp.Base(c.ID) != (Pair{}) {
			t.Errorf("the counter stands at %v, %v", p, err)
		}
		last = m
		if i == 2 {
			err = dp.Destroy()
		} else {
			err = dp.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := dp.LiveMap(); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

// A process that is handed the map can read it, and can change it in no way.
func TestLiveMapCannotBeWritten(t *testing.T) {
	need.BPF(t)
	dp, err := Open(Options{MaxRules: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer dp.Destroy()
	live, err := dp.LiveMap()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.FcntlInt(uintptr(live.FD), unix.F_DUPFD_CLOEXEC, 0) // as a process has it that was handed it
	if err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.NewMapFromFD(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	length := live.CPUs*live.Stride + epochBytes()
	if _, err := unix.Mmap(fd, 0, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		t.Error("the map could be mapped for writing")
	}
	if _, err := unix.Mmap(fd, 0, length+epochBytes(), unix.PROT_READ, unix.MAP_SHARED); err == nil {
		t.Error("more than the map could be mapped")
	}
	mem, err := unix.Mmap(fd, 0, length, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	if err := unix.Mprotect(mem, unix.PROT_READ|unix.PROT_WRITE); err == nil {
		t.Error("the mapping could be made writable")
	}
	if err := m.Put(uint32(0), make([]byte, m.ValueSize())); err == nil {
		t.Error("the value could be replaced")
	}
	if err := m.Delete(uint32(0)); err == nil {
		t.Error("the value could be deleted")
	}
	if got := atomic.LoadUint64(&wordsOf(mem)[live.CPUs*live.Stride/8]); got != live.Epoch {
		t.Errorf("epoch %d, want %d", got, live.Epoch)
	}
}
