package include

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/shm/words"
)

// Results of ft_words_take.
const (
	cSystem    = -1
	cNoCounter = -16
	cArgument  = -21
	cInUse     = -30
	cReply     = -32
)

// TestLyingServerOfWordsIsRefused has a server reply to a program that takes words as no instance replies. The clients in Go and in C
// refuse the reply with an error that names its cause, keep no descriptor and no mapping, and end the connection. The
// refusals of an instance have results of their own.
func TestLyingServerOfWordsIsRefused(t *testing.T) {
	take := build(t, "take", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
	good := words.Reply{Number: 1}.Message()
	edit := func(at int, v byte) []byte {
		b := append([]byte(nil), good...)
		b[at] = v
		return b
	}
	const sealed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	file := func(size int64, seals int) func(t *testing.T) []int {
		return func(t *testing.T) []int { return []int{memfd(t, size, seals)} }
	}
	words1 := file(4096, sealed)
	none := func(*testing.T) []int { return nil }
	many := func(n int) func(t *testing.T) []int {
		return func(t *testing.T) (fds []int) {
			for range n {
				fds = append(fds, memfd(t, 4096, sealed))
			}
			return fds
		}
	}
	open := func(path string, flags int) func(t *testing.T) []int {
		return func(t *testing.T) []int {
			if path == "" {
				path = filepath.Join(t.TempDir(), "file")
				if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Close(fd) })
			return []int{fd}
		}
	}
	refusal := func(errno unix.Errno, wait time.Duration) []byte {
		return words.Reply{Errno: uint32(errno), Wait: int64(wait)}.Message()
	}
	for _, tt := range []struct {
		name    string
		message []byte // nil: the server closes the connection
		fds     func(t *testing.T) []int
		inGo    error
		inC     int
	}{
		{"closes the connection", nil, none, words.ErrFormat, cReply},
		{"a short message", good[:64], words1, words.ErrFormat, cReply},
		{"a long message", append(edit(0, 'F'), 0), words1, words.ErrFormat, cReply},
		{"one byte", good[:1], words1, words.ErrFormat, cReply},
		{"another magic", edit(0, 'X'), words1, words.ErrFormat, cReply},
		{"version 2", edit(8, 2), words1, words.ErrFormat, cReply},
		{"another byte order", edit(12, 1), words1, words.ErrFormat, cReply},
		{"no descriptor", good, none, words.ErrFormat, cReply},
		{"a descriptor with an errno", refusal(unix.EBUSY, 0), words1, words.ErrFormat, cReply},
		{"two descriptors", good, many(2), words.ErrFormat, cReply},
		{"four descriptors", good, many(4), words.ErrFormat, cReply},
		{"a hundred descriptors", good, many(100), words.ErrFormat, cReply},
		{"a file of a disk", good, open("", unix.O_RDWR), words.ErrFormat, cReply},
		{"a directory", good, open("/", unix.O_RDONLY|unix.O_DIRECTORY), words.ErrFormat, cReply},
		{"a device", good, open("/dev/null", unix.O_RDWR), words.ErrFormat, cReply},
		{"a path", good, open("/proc/self/exe", unix.O_PATH), words.ErrFormat, cReply},
		{"a file that is not sealed", good, file(4096, 0), words.ErrFormat, cReply},
		{"a file that can shrink", good, file(4096, unix.F_SEAL_GROW), words.ErrFormat, cReply},
		{"a file that can grow", good, file(4096, unix.F_SEAL_SHRINK), words.ErrFormat, cReply},
		{"an empty file", good, file(0, sealed), words.ErrFormat, cReply},
		{"a file that is too short", good, file(4095, sealed), words.ErrFormat, cReply},
		{"a file that is too long", good, file(8192, sealed), words.ErrFormat, cReply},
		{"a file that cannot be written", good, file(4096, sealed|unix.F_SEAL_WRITE), unix.EPERM, cSystem},

		{"ENOENT", refusal(unix.ENOENT, 0), none, words.ErrNotFound, cNoCounter},
		{"EBUSY", refusal(unix.EBUSY, 0), none, words.ErrInUse, cInUse},
		{"EAGAIN", refusal(unix.EAGAIN, 250*time.Millisecond), none, words.ErrInUse, cInUse},
		{"EINVAL", refusal(unix.EINVAL, 0), none, words.ErrInvalid, cArgument},
		{"an errno that no instance sends", refusal(unix.ENOTTY, 0), none, unix.ENOTTY, cSystem},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mirror := filepath.Join(t.TempDir(), "m.mirror")
			s := lying(t, words.Path(mirror))
			fds := tt.fds(t)

			ended := s.reply(t, tt.message, fds)
			before, memory := openFiles(t), mappedMemfds(t)
			w, err := words.Take(mirror, "app", words.Options{})
			if w != nil || !errors.Is(err, tt.inGo) {
				t.Errorf("Go: %v, want %v", err, tt.inGo)
			}
			<-ended
			if now := openFiles(t); now > before {
				t.Errorf("Go keeps %d descriptors", now-before)
			}
			if now := mappedMemfds(t); now > memory {
				t.Errorf("Go keeps %d mappings", now-memory)
			}

			ended = s.reply(t, tt.message, fds)
			got := run(t, take, mirror, "app")
			<-ended
			var result, left, mappings int
			var wait int64
			if _, err := fmt.Sscan(got, &result, &wait, &left, &mappings); err != nil {
				t.Fatalf("%v: %q", err, got)
			}
			if result != tt.inC || left != 0 || mappings != 0 || strings.Contains(got, "unknown") {
				t.Errorf("C prints %q, want %d, and that no descriptor and no mapping is left", got, tt.inC)
			}
			if want := map[string]int64{"EAGAIN": int64(250 * time.Millisecond)}[tt.name]; wait != want {
				t.Errorf("C can take the words after %d ns, want %d", wait, want)
			}
			if strings.Contains(fmt.Sprint(err), "words_mode") {
				t.Errorf("Go: the hint of %v is for a client that could not connect", err)
			}
			t.Logf("Go: %v\nC: %s", err, got)
		})
	}
}

// server is the other end of the socket NAME.words.
type server struct{ fd int }

func lying(t *testing.T, path string) *server {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		t.Cleanup(func() { _ = unix.Close(fd) })
		err = errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 1))
	}
	if err != nil {
		t.Fatal(err)
	}
	return &server{fd}
}

// reply replies to the next client. The channel is closed when the client has ended the connection.
func (s *server) reply(t *testing.T, message []byte, fds []int) <-chan struct{} {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conn, _, err := unix.Accept4(s.fd, unix.SOCK_CLOEXEC)
		if err != nil {
			t.Error(err)
			return
		}
		defer unix.Close(conn)
		b := make([]byte, 256)
		if n, err := unix.Read(conn, b); err != nil || n != 128 {
			t.Errorf("a request of %d bytes: %v", n, err)
		}
		if message == nil {
			return
		}
		var rights []byte
		if len(fds) > 0 {
			rights = unix.UnixRights(fds...)
		}
		if err := unix.Sendmsg(conn, message, rights, nil, unix.MSG_NOSIGNAL); err != nil {
			t.Error(err)
		}
		n, err := unix.Read(conn, b)
		if n > 0 && bytes.Equal(b[:n], words.Request{Kind: words.ReturnWords}.Message()) {
			return // as an instance, whose words it may have
		}
		if n > 0 || err != nil && !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("after the reply the client sent %d bytes: %v", n, err)
		}
	}()
	return ended
}

func memfd(t *testing.T, size int64, seals int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("lie", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	err = unix.Ftruncate(fd, size)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func mappedMemfds(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(maps), "memfd:lie")
}
