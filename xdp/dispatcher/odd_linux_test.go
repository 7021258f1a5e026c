package dispatcher

import (
	"errors"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
)

func TestMain(m *testing.M) {
	_ = lab.Isolate(lab.ForTests) // without the privilege, each test names the privilege that it needs
	os.Exit(m.Run())
}

// slotOn returns the slot of a map in the dispatcher of a new interface, and gives the interface's hook to a program.
func slotOn(t *testing.T, p *ebpf.Program) *Link {
	t.Helper()
	need.Root(t)
	need.BPF(t)
	if err := errors.Join(rlimit.RemoveMemlock(), os.MkdirAll(Dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	w, err := lab.NewWire(lab.WireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	own, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { own.Close() })

	var s *Link
	err = w.Near.NS.Do(func() error {
		l, err := netlink.LinkByName(w.Near.Name)
		if err == nil && p != nil {
			err = netlink.LinkSetXdpFdWithFlags(l, p.FD(), unix.XDP_FLAGS_SKB_MODE)
		}
		if err == nil {
			s, err = NewLink(l.Attrs().Index, own, func() error { return nil })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// Looks at a hook do not wait for a process that holds the lock of the pins and hangs.
func TestLooksWaitForNoLock(t *testing.T) {
	empty, err := load(configOf(newVersion, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Close()
	s := slotOn(t, empty)
	hangs, err := lock()
	if err != nil {
		t.Fatal(err)
	}
	defer hangs()

	if attached, err := s.Attached(); attached || err != nil {
		t.Errorf("attached: %t, %v", attached, err)
	}
	if err := s.Before(func(string, ebpf.ProgramID) {}); err != nil {
		t.Error(err)
	}
}

// One program only has the name of a dispatcher. Another is a dispatcher whose components are not pinned as libxdp pins them.
func TestOddDispatchersAreLeftAlone(t *testing.T) {
	need.BPF(t)
	for _, c := range []struct {
		name string
		spec ebpf.MapSpec
		say  bool // a look has an error
	}{
		{"a long value", ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 1 << 20, MaxEntries: 1}, true},
		{"a short value", ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 1, MaxEntries: 1}, true},
		{"a value for each CPU", ebpf.MapSpec{Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 124, MaxEntries: 1}, true},
		{"a hash", ebpf.MapSpec{Type: ebpf.Hash, KeySize: 16, ValueSize: 124, MaxEntries: 1}, true},
		{"zeros", ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 124, MaxEntries: 1}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := ebpf.NewMap(&c.spec)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			p := named(t, m)
			s := slotOn(t, p)
			if attached, err := s.Attached(); attached || (err != nil) != c.say {
				t.Errorf("attached: %t, %v", attached, err)
			}
			if err := s.Update(p); err == nil {
				t.Error("it was changed")
			}
			if a, err := s.hook.attached(); a.program == 0 || err != nil {
				t.Errorf("program %d holds the hook, %v", a.program, err)
			}
		})
	}

	t.Run("components without pins", func(t *testing.T) {
		p, err := load(configOf(newVersion, make([]member, 3)))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		s := slotOn(t, p)
		if attached, err := s.Attached(); attached || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("attached: %t, %v", attached, err)
		}
		if err := s.Detach(); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("detaching: %v", err)
		}
	})
}

// named loads a program of the name of a dispatcher that uses a map.
func named(t *testing.T, m *ebpf.Map) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.LoadMapPtr(asm.R1, m.FD()), asm.Mov.Imm(asm.R0, verdictPass), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}
