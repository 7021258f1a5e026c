package xdp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// mountPins mounts a bpffs that ends with the test.
func mountPins(t testing.TB, at, options string) {
	t.Helper()
	need.BPFFS(t)
	if err := unix.Mount("bpf", at, "bpf", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(at, unix.MNT_DETACH) })
}

// held says which hooks of an end hold a program.
func held(t testing.TB, e *lab.End) (hooks []string) {
	t.Helper()
	err := e.NS.Do(func() error {
		if xdpProgram(e.Index) != 0 {
			hooks = append(hooks, "xdp")
		}
		chain, err := link.QueryPrograms(link.QueryOptions{Target: e.Index, Attach: ebpf.AttachTCXEgress})
		if err == nil && len(chain.Programs) > 0 {
			hooks = append(hooks, "tcx")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return hooks
}

func TestPinsAreRefusedWhereAnotherUserCouldReplaceThem(t *testing.T) {
	need.BPF(t)
	const other = 1001
	for _, c := range []struct {
		name, mount string
		make        func(parent string) error // the parent of the pins' directory, which is below the mount
		says        string                    // "": taken
	}{
		{"root's below a sticky directory", "mode=1777", func(p string) error { return os.Mkdir(p, 0o755) }, ""},
		{"not there yet", "mode=0700", func(string) error { return nil }, ""},
		{"another user's below a sticky directory", "mode=1777", func(p string) error { return errors.Join(os.Mkdir(p, 0o755), os.Chown(p, other, other)) }, "belongs to user 1001"},
		{"below a directory that others write", "mode=0700", func(p string) error { return os.Chmod(filepath.Dir(p), 0o777) }, "chmod go-w"},
		{"pins that a group may write", "mode=0700", func(p string) error {
			pins := filepath.Join(p, "pins")
			return errors.Join(os.Mkdir(p, 0o755), os.Mkdir(pins, 0o755), os.Chmod(pins, 0o775))
		}, "chmod 0700"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs := t.TempDir()
			mountPins(t, fs, c.mount)
			parent := filepath.Join(fs, "parent")
			if err := c.make(parent); err != nil {
				t.Fatal(err)
			}
			dp, err := Open(Options{PinDir: filepath.Join(parent, "pins"), MaxRules: 256})
			if err == nil {
				err = dp.Destroy()
			}
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
			if _, err := os.Lstat(filepath.Join(parent, "pins", "meta")); err == nil {
				t.Error("something is pinned there")
			}
		})
	}
}

func TestDestroyDetachesAfterPinsWereMoved(t *testing.T) {
	w := testWire(t)
	dir := pinDir(t)
	dp := openTest(t, Options{PinDir: dir, MaxRules: 256})
	attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true, Egress: true})
	moved := dir + "-moved"
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(moved) })
	if got := held(t, w.Near); len(got) != 2 {
		t.Fatalf("programs on %q before the end", got)
	}
	if err := dp.Destroy(); err != nil {
		t.Error(err)
	}
	if got := held(t, w.Near); len(got) != 0 {
		t.Errorf("programs on %q after Destroy", got)
	}
	if left, err := os.ReadDir(moved); err != nil || len(left) != 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

// The next process adopts the new pins, and no packet is missing.
func TestRepinMakesLostPinsAgain(t *testing.T) {
	for name, lose := range map[string]func(fs, dir string) error{
		"a link": func(_, dir string) error {
			links, err := filepath.Glob(filepath.Join(dir, "link-*-xdp"))
			if len(links) != 1 {
				return fmt.Errorf("links %q: %w", links, err)
			}
			return os.Remove(links[0])
		},
		"a map":         func(_, dir string) error { return os.Remove(filepath.Join(dir, "slots")) },
		"the directory": func(_, dir string) error { return os.RemoveAll(dir) },
		"moved":         func(_, dir string) error { return os.Rename(dir, dir+"-moved") },
		"a new directory": func(_, dir string) error {
			return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700))
		},
		"the file system": func(fs, _ string) error {
			return errors.Join(unix.Unmount(fs, unix.MNT_DETACH), unix.Mount("bpf", fs, "bpf", 0, "mode=0700"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := testWire(t)
			fs := t.TempDir()
			mountPins(t, fs, "mode=0700")
			dir := filepath.Join(fs, "pins")
			dp := openTest(t, Options{PinDir: dir, MaxRules: 2048})
			id := floodRules(t, dp, 1)[0]
			attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true, Egress: true})
			if lost, err := dp.Repin(); lost || err != nil {
				t.Errorf("with all pins in place: %v, %v", lost, err)
			}
			if err := lose(fs, dir); err != nil {
				t.Fatal(err)
			}
			if lost, err := dp.Repin(); !lost || err != nil {
				t.Fatalf("got %v, %v", lost, err)
			}
			if lost, err := dp.Repin(); lost || err != nil {
				t.Errorf("once more: %v, %v", lost, err)
			}
			if err := dp.Close(); err != nil {
				t.Fatal(err)
			}
			if got := held(t, w.Near); len(got) != 2 {
				t.Errorf("programs on %q after Close", got)
			}
			s := flood(t, w.Far, 1, 100, lab.SenderOptions{})
			if err := errors.Join(s.Run(t.Context(), 1000), s.Settle(t.Context())); err != nil {
				t.Fatal(err)
			}
			dp = openTest(t, Options{PinDir: dir, MaxRules: 2048})
			if got, want := readOne(t, dp, id), Pair(s.Sent()[0]); got != want {
				t.Errorf("counted %+v, want %+v", got, want)
			}
		})
	}
}

func TestCloseReportsProgramsDetachedForLackOfPins(t *testing.T) {
	for name, take := range map[string]func(fs, dir string) error{
		"unmounted": func(fs, _ string) error { return unix.Unmount(fs, unix.MNT_DETACH) },
		"another's are there": func(_, dir string) error {
			if err := os.Rename(dir, dir+"-moved"); err != nil {
				return err
			}
			dp, err := Open(Options{PinDir: dir, MaxRules: 256})
			if err != nil {
				return err
			}
			return dp.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := testWire(t)
			fs := t.TempDir()
			mountPins(t, fs, "mode=0700")
			dir := filepath.Join(fs, "pins")
			dp := openTest(t, Options{PinDir: dir, MaxRules: 256})
			attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true, Egress: true})
			if err := take(fs, dir); err != nil {
				t.Fatal(err)
			}
			if lost, err := dp.Repin(); !lost || err == nil {
				t.Errorf("got %v, %v", lost, err)
			}
			if got := held(t, w.Near); len(got) != 2 {
				t.Errorf("programs on %q while it runs", got)
			}
			if err := dp.Close(); err == nil || !strings.Contains(err.Error(), "closing detaches the programs") {
				t.Errorf("Close: %v", err)
			}
		})
	}
}

// The file system of the pins is gone when the hook is attached, and comes back.
func TestHookAttachedWithoutPinsIsPinnedLater(t *testing.T) {
	w := testWire(t)
	fs := t.TempDir()
	mountPins(t, fs, "mode=0700")
	dp := openTest(t, Options{PinDir: filepath.Join(fs, "pins"), MaxRules: 256})
	attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})
	if err := unix.Unmount(fs, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true, Egress: true})
	if lost, err := dp.Repin(); !lost || err == nil {
		t.Errorf("without a file system: %v, %v", lost, err)
	}
	mountPins(t, fs, "mode=0700")
	if lost, err := dp.Repin(); !lost || err != nil {
		t.Errorf("with one: %v, %v", lost, err)
	}
	if err := dp.Close(); err != nil {
		t.Error(err)
	}
	if got := held(t, w.Near); len(got) != 2 {
		t.Errorf("programs on %q after Close", got)
	}
	openTest(t, Options{PinDir: filepath.Join(fs, "pins"), MaxRules: 256})
}

// A directory lies where the link should be pinned.
func TestFailedPinDetachesTheProgramAndRecordsNoMode(t *testing.T) {
	w := testWire(t)
	dp := openTest(t, Options{PinDir: pinDir(t), MaxRules: 256})
	port, err := dp.Port(w.Near.Name)
	if err != nil {
		t.Fatal(err)
	}
	obstacle := dp.pinPath(site{hookKey: hookKey{port, HookIngress}})
	if err := os.Mkdir(obstacle, 0o700); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(obstacle)

	err = w.Near.NS.Do(func() error {
		_, err := dp.Attach(w.Near.Name, AttachOptions{Mode: ModeNative, Ingress: true})
		return err
	})
	if !errors.Is(err, os.ErrExist) {
		t.Errorf("attaching: %v, want an error of the pin", err)
	}
	if mode := dp.meta.port(port).mode(HookIngress); mode != "" {
		t.Errorf("the record of the interface has mode %q, and no program is attached", mode)
	}
	if got := held(t, w.Near); len(got) != 0 {
		t.Errorf("programs are left on %q", got)
	}
}

// stuck is a link that does not detach, and does not say so.
type stuck struct{ link.Link }

func (stuck) Detach() error { return nil }

func TestDestroyFailsIfAProgramStaysAttached(t *testing.T) {
	w := testWire(t)
	dp := openTest(t, Options{PinDir: pinDir(t), MaxRules: 256})
	attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})
	for _, h := range dp.hooks {
		h.link = stuck{h.link}
	}
	if err := dp.Destroy(); err == nil || !strings.Contains(err.Error(), "the kernel still has it on interface") {
		t.Errorf("got %v", err)
	}
}
