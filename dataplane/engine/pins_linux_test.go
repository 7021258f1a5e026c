package engine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// Pins that go under a running instance are a condition, and are made again: by itself, and,
// after an unmount, by the fix that the condition names.
func TestLostPinsAreAConditionAndMadeAgain(t *testing.T) {
	t.Parallel()
	need.Cap(t, "sys_admin") // to mount; a bpffs may be there for users too
	fs := t.TempDir()
	mount := func() error { return unix.Mount("bpf", fs, "bpf", 0, "mode=0700") }
	if err := mount(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(fs, unix.MNT_DETACH) })
	b := newBench(t, "native", flow.Flow{Name: "a", Match: match(t, "udp dport 1001")})
	b.cfg.XDP.PinDir, b.cfg.XDP.KeepPins = filepath.Join(fs, "flowtally", "pins"), true
	frames := lab.Stream{Frames: [][]byte{udpTo(1001, 60)}}
	e := b.start(t)
	total := backend.Pair(b.send(t, 1000, frames)[0])

	if err := os.RemoveAll(filepath.Join(fs, "flowtally")); err != nil {
		t.Fatal(err)
	}
	awaitCondition(t, e, "pins-lost", b.cfg.XDP.PinDir, true)
	awaitCondition(t, e, "pins-lost", b.cfg.XDP.PinDir, false)

	if err := unix.Unmount(fs, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	c := awaitCondition(t, e, "pins-lost", b.cfg.XDP.PinDir, true)
	lab.Step(t, c.Fix, "after an unmount by mounting its bpffs again") // only this test knows where
	if err := mount(); err != nil {
		t.Fatal(err)
	}
	awaitCondition(t, e, "pins-lost", b.cfg.XDP.PinDir, false)

	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	total = backend.Add(total, backend.Pair(b.send(t, 1000, frames)[0])) // while nothing runs
	e = b.start(t)
	await(t, reader(t, b.cfg), "a", total)

	// With keep_pins, a Close that cannot keep the pins returns an error.
	if err := unix.Unmount(fs, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err == nil || !strings.Contains(err.Error(), "closing detaches") {
		t.Errorf("Close without pins: %v", err)
	}
}

// A start refuses a directory that another user could take away, and says how to mend it.
func TestPinsBelowAnotherUsersDirectoryAreRefused(t *testing.T) {
	fs := need.BPFFS(t)
	parent := filepath.Join(fs, lab.Unique("another-"))
	if err := errors.Join(os.Mkdir(parent, 0o755), os.Chown(parent, 1001, 1001)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(parent) })
	b := newBench(t, "native", flow.Flow{Name: "a", Match: match(t, "any")})
	b.cfg.XDP.PinDir = filepath.Join(parent, "pins")
	try := func() error {
		return b.wire.Near.NS.Do(func() error {
			e, err := New(t.Context(), b.cfg, Options{})
			if err == nil {
				err = e.Close()
			}
			return err
		})
	}
	err := try()
	if err == nil || !strings.Contains(err.Error(), "chown root "+parent) {
		t.Fatalf("got %v", err)
	}
	if err := os.Chown(parent, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := try(); err != nil {
		t.Error(err)
	}
}
