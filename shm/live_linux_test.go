package shm

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// bpfMap makes a map as the programs count in, with one CPU of 8 counters whose slot 2 holds 9 packets, in epoch 1.
func bpfMap(t testing.TB) LiveMap {
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
	return LiveMap{FD: m.FD(), ID: liveMap, CPUs: 1, Counters: 8, Stride: page}
}

// liveMirror is a mirror with one counter that is counted in slot 2 of a map, and a reader.
func liveMirror(t testing.TB) (*Writer, *Reader, Handle) {
	t.Helper()
	w := mustCreate(t, with(small, mirrorPath(t)))
	h := mustAdd(t, w, Entry{Name: "a"})
	mustSetLive(t, w, h, LiveSlot{Map: liveMap, Epoch: 1, Slot: 2, BasePackets: 100, BaseBytes: 6400})
	return w, mustOpen(t, w.path), h
}

// Without a socket, or with one of a dead writer, the error must name the next step.
func TestLiveWithoutASocketNamesTheNextStep(t *testing.T) {
	_, r, h := liveMirror(t)
	if _, err := r.Live(h); !errors.Is(err, ErrNoLive) || !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "mirror.live_mode") {
		t.Errorf("without a socket: %v", err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: LivePath(r.path)}), unix.Close(fd)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Live(h); !errors.Is(err, ErrNoLive) || !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("after the writer's end: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Live(h); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// If a socket sends nonsense, or nothing, its reader gets an error within bounded time, and loses no descriptor.
func TestHostileLiveSocketsCostAnErrorInBoundedTime(t *testing.T) {
	page := os.Getpagesize()
	lies := func(change func(m *LiveMap)) func(m LiveMap) ([]byte, []int) {
		return func(m LiveMap) ([]byte, []int) {
			change(&m)
			return m.Message(), []int{m.FD}
		}
	}
	for _, tt := range []struct {
		name string
		send func(m LiveMap) (message []byte, fds []int)
		want error
	}{
		{"nothing", nil, os.ErrDeadlineExceeded},
		{"an end", func(LiveMap) ([]byte, []int) { return nil, nil }, ErrFormat},
		{"no descriptor", func(m LiveMap) ([]byte, []int) { return m.Message(), nil }, ErrFormat},
		{"two descriptors", func(m LiveMap) ([]byte, []int) { return m.Message(), []int{m.FD, m.FD} }, ErrFormat},
		{"many descriptors", func(m LiveMap) ([]byte, []int) { return m.Message(), make([]int, 200) }, ErrFormat},
		{"a short message", func(m LiveMap) ([]byte, []int) { return m.Message()[:60], []int{m.FD} }, ErrFormat},
		{"a long message", func(m LiveMap) ([]byte, []int) { return append(m.Message(), 0), []int{m.FD} }, ErrFormat},
		{"another magic", func(m LiveMap) ([]byte, []int) { return append([]byte{'f'}, m.Message()[1:]...), []int{m.FD} }, ErrFormat},
		{"another version", func(m LiveMap) ([]byte, []int) {
			b := m.Message()
			b[lvmVersion]++
			return b, []int{m.FD}
		}, ErrFormat},
		{"a file", func(m LiveMap) ([]byte, []int) {
			fd, err := unix.MemfdCreate("file", unix.MFD_CLOEXEC)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { unix.Close(fd) })
			return m.Message(), []int{fd}
		}, ErrFormat},
		{"more CPUs than the map holds", lies(func(m *LiveMap) { m.CPUs = 3 }), ErrFormat},
		{"no CPUs", lies(func(m *LiveMap) { m.CPUs = 0 }), ErrFormat},
		{"all CPUs", lies(func(m *LiveMap) { m.CPUs = -1 }), ErrFormat},
		{"more counters than a CPU's bytes hold", lies(func(m *LiveMap) { m.Counters = page }), ErrFormat},
		{"no counters", lies(func(m *LiveMap) { m.Counters = 0 }), ErrFormat},
		{"a stride that wraps", lies(func(m *LiveMap) { m.Stride, m.CPUs = -8, 2 }), ErrFormat},
		{"no stride", lies(func(m *LiveMap) { m.Stride = 0 }), ErrFormat},
		{"a crooked stride", lies(func(m *LiveMap) { m.Stride -= 4 }), ErrFormat},
		{"another map", lies(func(m *LiveMap) { m.ID++ }), ErrNoLive},
		{"fewer counters than the entry's slot", lies(func(m *LiveMap) { m.Counters = 2 }), ErrFormat},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := bpfMap(t)
			_, r, h := liveMirror(t)
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: LivePath(r.path)}), unix.Listen(fd, 1)); err != nil {
				t.Fatal(err)
			}
			served := make(chan error, 1)
			if tt.send != nil {
				message, fds := tt.send(m)
				go func() {
					conn, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
					if err == nil && message != nil {
						err = unix.Sendmsg(conn, message, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL)
					}
					served <- errors.Join(err, unix.Close(conn))
				}()
			} else {
				served <- nil
			}
			before := openFiles(t)
			_, err = r.Live(h)
			if !errors.Is(err, tt.want) || !errors.Is(err, ErrNoLive) && tt.name != "fewer counters than the entry's slot" {
				t.Error(err)
			}
			if err := <-served; err != nil {
				t.Error(err)
			}
			if after := openFiles(t); after > before {
				t.Errorf("%d descriptors were open before, %d are after", before, after)
			}
		})
	}
}

func openFiles(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// A reader must refuse a socket of an untrusted user.
func TestLiveSocketOfAnUntrustedUserIsRefused(t *testing.T) {
	need.Root(t)
	_, r, h := liveMirror(t)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: LivePath(r.path)}); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // which ends with the goroutine: the user is the thread's
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
			done <- errno
			return
		}
		done <- unix.Listen(fd, 1) // the kernel notes the user now
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := r.Live(h); !errors.Is(err, ErrNoLive) || !errors.Is(err, ErrPermission) {
		t.Error(err)
	}
}

// A writer removes a socket that an earlier writer left, but no other kind of file with that name.
func TestCreateRemovesOnlyASocketOfThisUser(t *testing.T) {
	socket := func(path string) error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Close(fd))
	}
	for _, tt := range []struct {
		name  string
		root  bool // the case needs root
		make  func(path string) error
		stays bool
	}{
		{"socket", false, socket, false},
		{"file", false, func(path string) error { return os.WriteFile(path, []byte("mine"), 0o600) }, true},
		{"directory", false, func(path string) error { return os.Mkdir(path, 0o700) }, true},
		{"FIFO", false, func(path string) error { return unix.Mkfifo(path, 0o600) }, true},
		{"link to a socket", false, func(path string) error {
			return errors.Join(socket(path+".other"), os.Symlink(path+".other", path))
		}, true},
		{"socket of another user", true, func(path string) error {
			return errors.Join(socket(path), os.Chown(path, 65534, -1))
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.root {
				need.Root(t)
			}
			o := with(small, mirrorPath(t))
			name := LivePath(o.Path)
			if err := tt.make(name); err != nil {
				t.Fatal(err)
			}
			was, err := os.Lstat(name)
			if err != nil {
				t.Fatal(err)
			}
			mustCreate(t, o)
			is, err := os.Lstat(name)
			if tt.stays != (err == nil && os.SameFile(was, is)) {
				t.Errorf("%v, %v", is, err)
			}
		})
	}
}
