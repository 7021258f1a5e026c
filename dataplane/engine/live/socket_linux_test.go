package live

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/shm"
)

// counters makes a frozen map of one CPU with 8 counters whose slot 2 holds 9 packets, in epoch 1.
func counters(t *testing.T) shm.LiveMap {
	t.Helper()
	need.BPF(t)
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	value := make([]byte, 2*page)
	binary.NativeEndian.PutUint64(value[32:], 9)
	binary.NativeEndian.PutUint64(value[40:], 9*64<<8+9)
	binary.NativeEndian.PutUint64(value[page:], 1)
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(value)), MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	if err := errors.Join(m.Put(uint32(0), value), m.Freeze()); err != nil {
		t.Fatal(err)
	}
	return shm.LiveMap{FD: m.FD(), ID: 7, CPUs: 1, Counters: 8, Stride: page}
}

// mirror makes a mirror with one counter that is counted in slot 2 of map 7.
func mirror(t *testing.T) (path string, h shm.Handle) {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "flowtally-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path = filepath.Join(dir, "m.mirror")
	w, err := shm.Create(shm.Options{Path: path, History: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	if h, err = w.Add(shm.Entry{Name: "a"}); err == nil {
		err = w.SetLive(h, shm.LiveSlot{Map: 7, Epoch: 1, Slot: 2, BasePackets: 100, BaseBytes: 6400})
	}
	if err != nil {
		t.Fatal(err)
	}
	return path, h
}

// check reads the counter with a reader that has no map yet.
func check(t *testing.T, path string, h shm.Handle) (shm.Live, error) {
	t.Helper()
	r, err := shm.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	l, err := r.Live(h)
	if err != nil {
		return l, err
	}
	if p, b, err := l.Load(); p != 109 || b != 109*64 || err != nil {
		t.Errorf("%d packets, %d bytes, %v", p, b, err)
	}
	return l, nil
}

// Until Close the socket sends the map to each client, even if other clients hang, write or have gone, and after
// its name was removed. A client's mapping outlives the socket, and the descriptor passed to Listen.
func TestLiveSocketServesEachClientUntilClose(t *testing.T) {
	m := counters(t)
	path, h := mirror(t)
	name := shm.LivePath(path)
	s, err := Listen(Options{Path: name, Map: m, Mode: 0o640, Group: os.Getegid()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if st, err := os.Lstat(name); err != nil || st.Mode() != os.ModeSocket|0o640 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	l, err := check(t, path, h)
	if err != nil {
		t.Fatal(err)
	}
	for range mostUnread / 2 {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd) // it hangs until then
		for err = unix.EINTR; errors.Is(err, unix.EINTR); {
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: name})
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Send(fd, []byte("give me more"), unix.MSG_NOSIGNAL)
	}
	if _, err := check(t, path, h); err != nil {
		t.Error(err)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	s.Keep()
	s.Keep()
	if _, err := check(t, path, h); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*.live.*")); len(left) > 0 || err != nil {
		t.Errorf("%v, %v", left, err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s.Keep()
	if p, _, err := l.Load(); p != 109 || err != nil {
		t.Errorf("after Close: %d, %v", p, err)
	}
	if _, err := check(t, path, h); !errors.Is(err, shm.ErrNoLive) || !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("after Close: %v", err)
	}
	// The next one takes the name over.
	if s, err = Listen(Options{Path: name, Map: m, Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := check(t, path, h); err != nil {
		t.Error(err)
	}
}

// Clients of one user do not receive their messages. The number of descriptors in flight must stay bounded. Another
// user gets the map, and so does this one once it receives.
func TestUnreadMessagesStarveNoOther(t *testing.T) {
	need.Root(t) // to be two users
	m := counters(t)
	path, _ := mirror(t)
	name := shm.LivePath(path)
	if err := os.Chmod(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := Listen(Options{Path: name, Map: m, Mode: 0o666})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()

	connect := func() int {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			t.Cleanup(func() { unix.Close(fd) })
			for err = unix.EINTR; errors.Is(err, unix.EINTR); {
				err = unix.Connect(fd, &unix.SockaddrUnix{Name: name})
			}
		}
		if err != nil {
			t.Error(err)
		}
		return fd
	}
	// receive waits for the message or the end, and reports whether a message came.
	receive := func(fd int) bool {
		n, err := 0, error(unix.EINTR)
		for errors.Is(err, unix.EINTR) {
			n, _, err = unix.Recvfrom(fd, make([]byte, 256), 0)
		}
		return n > 0
	}
	var hog []int
	lab.As(t, 2001, func() {
		for range 3 * mostUnread {
			hog = append(hog, connect())
		}
		if receive(connect()) {
			t.Error("the user gets a message more, although it has received none")
		}
	})
	lab.As(t, 2002, func() {
		if !receive(connect()) {
			t.Error("the other user gets no message")
		}
	})
	got := 0
	for _, fd := range hog {
		if receive(fd) {
			got++
		}
	}
	if got != mostUnread {
		t.Errorf("%d messages waited, want %d", got, mostUnread)
	}
	lab.As(t, 2001, func() {
		if !receive(connect()) {
			t.Error("the user gets no message, although it has received all")
		}
	})
}

// The error for a path too long for a socket must name the possible length. If the process is no member of the group,
// Listen fails and leaves no file.
func TestLiveSocketRefusesLongPathsAndForeignGroups(t *testing.T) {
	m := counters(t)
	path, _ := mirror(t)
	_, err := Listen(Options{Path: filepath.Join(filepath.Dir(path), strings.Repeat("d", 80)+".live"), Map: m, Mode: 0o600})
	if !errors.Is(err, dataplane.ErrInvalid) || !strings.Contains(err.Error(), "choose a shorter mirror.path") {
		t.Error(err)
	}
	if _, err := Listen(Options{Path: shm.LivePath(path), Map: shm.LiveMap{FD: -1}, Mode: 0o600}); !errors.Is(err, unix.EBADF) {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*live*")); len(left) > 0 || err != nil {
		t.Errorf("%v, %v", left, err)
	}
}

// A file that is no socket of this user keeps its name and its content, whether it existed before the socket or replaced
// it.
func TestLiveSocketReplacesNoOtherFile(t *testing.T) {
	m := counters(t)
	path, _ := mirror(t)
	name := shm.LivePath(path)
	check := func(when string) {
		t.Helper()
		if b, err := os.ReadFile(name); string(b) != "mine" || err != nil {
			t.Errorf("%s: %q, %v", when, b, err)
		}
		if left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*.live.*")); len(left) > 0 || err != nil {
			t.Errorf("%s: %v, %v", when, left, err)
		}
	}
	write := func() {
		t.Helper()
		if err := os.WriteFile(name, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write()
	if s, err := Listen(Options{Path: name, Map: m, Mode: 0o600}); !errors.Is(err, dataplane.ErrPermission) || !strings.Contains(err.Error(), "move it away") {
		t.Errorf("%v, %v", s, err)
	}
	check("before the socket")
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	s, err := Listen(Options{Path: name, Map: m, Mode: 0o600})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	write()
	s.Keep()
	check("in its place")
}
