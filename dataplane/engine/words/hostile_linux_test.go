package words_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/published"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/shm/shmtest"
	shmwords "github.com/flowtally/flowtally/shm/words"
)

// A hostile program can write nonsense into its own words and do nothing else. It cannot change the length of its file, so no
// reader faults. If it keeps the file after its words were released, the file serves no counter.
func TestHostileProgramSpoilsItsOwnWordsAlone(t *testing.T) {
	path := mirror(t)
	svc := instance(t, path, "good", "bad")
	good := take(t, path, "good")
	good.Add(1000, 7)
	r := shmtest.MustOpen(t, path)
	goodWords := device(t, r, "good")

	evil := connect(t, path)
	errno, number, fd := evil.send(shmwords.Request{Kind: shmwords.TakeWords, Name: "bad", Limit: math.MaxUint64}.Message())
	if errno != 0 || fd < 0 {
		t.Fatalf("taking: %v", errno)
	}
	badWords := device(t, r, "bad")
	for what, try := range map[string]func() error{
		"cutting it short": func() error { return unix.Ftruncate(fd, 0) },
		"making it longer": func() error { return unix.Ftruncate(fd, 1<<30) },
		"reserving more":   func() error { return unix.Fallocate(fd, 0, 4096, 1<<30) },
		"sealing it":       func() error { _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); return err },
	} {
		if err := try(); !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: %v, want EPERM", what, err)
		}
	}
	if _, err := unix.Pwrite(fd, make([]byte, 8), 4096); err == nil {
		t.Error("the program wrote behind the words")
	}
	// A hole: the words are 0, and no reader faults.
	mem, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	binary.NativeEndian.PutUint64(mem, 5)
	lab.Eventually(t, "the mirror has the words", func() bool { return published.Completions(t, r, "bad") >= 5 })

	// From the first poll that finds a smaller number on, the counter has other words.
	spoilt := func() {
		if _, _, err := badWords.Load(); err != nil && !errors.Is(err, shm.ErrNoDevice) && !errors.Is(err, shm.ErrFormat) {
			t.Errorf("the spoilt words: %v", err)
		}
	}
	for _, fill := range []byte{0xff, 0x80, 0, 1} {
		copy(mem, bytes.Repeat([]byte{fill}, len(mem)))
		spoilt()
		wantWords(t, &goodWords, 1000, 7)
	}
	if err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096); err != nil {
		t.Fatal(err)
	}
	spoilt()
	// A reader's descriptor is for reading, and leads to no other.
	errno, _, ro := connect(t, path).send(shmwords.Request{Kind: shmwords.ReadWords, Number: number}.Message())
	if errno != 0 || ro < 0 {
		t.Fatalf("asking for the file: %v", errno)
	}
	if _, err := unix.Mmap(ro, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); !errors.Is(err, unix.EACCES) {
		t.Errorf("mapping a reader's descriptor for writing: %v, want EACCES", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(ro, &st); err != nil || st.Mode&0o777 != 0o400 {
		t.Errorf("mode %o: other users could open it for writing by /proc (%v)", st.Mode&0o777, err)
	}

	lab.Eventually(t, "the counter has other words", func() bool {
		_, _, err := badWords.Load()
		return errors.Is(err, shm.ErrNoDevice)
	})

	// The words of a program that was ended are others' no more: it goes on writing, and its counter does not change.
	if err := svc.ReleaseWords(t.Context(), "bad"); err != nil {
		t.Fatal(err)
	}
	if _, err := svc.ReserveWords(t.Context(), "bad"); err != nil {
		t.Fatal(err)
	}
	next := take(t, path, "bad")
	next.Add(3, 0)
	binary.NativeEndian.PutUint64(mem, 1<<40)
	nextWords := device(t, r, "bad")
	wantWords(t, &nextWords, 3, 0)
	wantWords(t, &goodWords, 1000, 7)
	if _, _, err := badWords.Load(); !errors.Is(err, shm.ErrGone) && !errors.Is(err, shm.ErrNoDevice) {
		t.Errorf("a reader of the old words: %v", err)
	}
	lab.Eventually(t, "the mirror has the next program's words", func() bool { return published.Completions(t, r, "bad") == 3 })
	if got := published.Completions(t, r, "good"); got != 1000 {
		t.Errorf("the other counter has %d completions, want 1000", got)
	}
	problems, err := shm.Check(path)
	if err != nil || len(problems) > 0 {
		t.Errorf("the mirror: %v %v", problems, err)
	}
}

// The socket refuses malformed requests, and serves the next client.
func TestHostileRequestsAreRefused(t *testing.T) {
	path := mirror(t)
	instance(t, path, "app")
	good := shmwords.Request{Kind: shmwords.TakeWords, Name: "app", Limit: math.MaxUint64}
	edit := func(at int, v byte) []byte {
		b := good.Message()
		b[at] = v
		return b
	}
	for what, tt := range map[string]struct {
		message []byte
		want    unix.Errno
	}{
		"magic":          {edit(0, 'X'), unix.ECONNRESET},
		"version":        {edit(8, 2), unix.ECONNRESET},
		"byte order":     {edit(12, 0), unix.ECONNRESET},
		"short":          {good.Message()[:64], unix.ECONNRESET},
		"long":           {append(good.Message(), 0), unix.ECONNRESET},
		"empty":          {nil, unix.ECONNRESET},
		"kind":           {edit(16, 9), unix.EINVAL},
		"a small limit":  {shmwords.Request{Kind: shmwords.TakeWords, Name: "app", Limit: 255}.Message(), unix.EINVAL},
		"another name":   {shmwords.Request{Kind: shmwords.TakeWords, Name: "nosuch", Limit: math.MaxUint64}.Message(), unix.ENOENT},
		"another number": {shmwords.Request{Kind: shmwords.ReadWords, Number: 7}.Message(), unix.ENOENT},
		"no name":        {shmwords.Request{Kind: shmwords.TakeWords, Limit: math.MaxUint64}.Message(), unix.ENOENT},
	} {
		if errno, _, fd := connect(t, path).send(tt.message); errno != tt.want || fd >= 0 {
			t.Errorf("%s: %v, descriptor %d, want %v", what, errno, fd, tt.want)
		}
	}
	w := take(t, path, "app")
	if errno, _, fd := connect(t, path).send(good.Message()); errno != unix.EBUSY || fd >= 0 {
		t.Errorf("taking words that another has: %v, want EBUSY", errno)
	}
	w.Add(1, 0)
	if comp, _ := w.Load(); comp != 1 || !w.Served() {
		t.Errorf("the words have %d, served: %v", comp, w.Served())
	}
}

// Clients connect and send nothing, or open as many connections as they can. They must not keep a program from its words for
// longer than requestTimeout.
func TestSilentClientsDelayNoProgramForLong(t *testing.T) {
	path := mirror(t)
	instance(t, path, "app")
	for range 300 { // more than are served at a time
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		if err := unix.Connect(fd, &unix.SockaddrUnix{Name: shmwords.Path(path)}); err != nil {
			t.Fatal(err)
		}
	}
	lab.Eventually(t, "the words are taken", func() bool {
		w, err := shmwords.Take(path, "app", shmwords.Options{})
		if err == nil {
			err = w.Close()
		}
		return err == nil
	})
}

// Two users with 300 silent connections each must not delay a third one: its first request gets its answer.
func TestSilentUsersStarveNoOther(t *testing.T) {
	need.Root(t) // to be three users
	path := mirror(t)
	instance(t, path, "app")
	dir := filepath.Dir(path)
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(shmwords.Path(path), 0o666)); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []int{2001, 2002} {
		lab.As(t, uid, func() {
			for range 300 {
				fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
				if err != nil {
					t.Error(err)
					return
				}
				t.Cleanup(func() { _ = unix.Close(fd) })
				if err := unix.Connect(fd, &unix.SockaddrUnix{Name: shmwords.Path(path)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	lab.As(t, 2003, func() {
		for i := range 100 {
			w, err := shmwords.Take(path, "app", shmwords.Options{})
			if err != nil {
				t.Errorf("the third user, attempt %d: %v", i, err)
				return
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// A user asks for words and never receives the replies. The number of descriptors in flight must stay bounded, whether its
// connections end or not. Another user gets its words, and so does this one once it receives.
func TestUnreadRepliesStarveNoOther(t *testing.T) {
	need.Root(t) // to be two users
	path := mirror(t)
	instance(t, path, "app", "mine")
	dir := filepath.Dir(path)
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(shmwords.Path(path), 0o666)); err != nil {
		t.Fatal(err)
	}
	_, number, _ := connect(t, path).send(shmwords.Request{Kind: shmwords.TakeWords, Name: "mine", Limit: math.MaxUint64}.Message())
	asks := shmwords.Request{Kind: shmwords.ReadWords, Number: number}.Message()
	with := func(fd int) bool { // the reply that waits has a descriptor
		b, control := make([]byte, 256), make([]byte, unix.CmsgSpace(16))
		n, controls, _, _, err := unix.Recvmsg(fd, b, control, unix.MSG_CMSG_CLOEXEC)
		if err != nil || n == 0 {
			return false
		}
		list, err := unix.ParseSocketControlMessage(control[:controls])
		if err != nil || len(list) == 0 {
			return false
		}
		fds, err := unix.ParseUnixRights(&list[0])
		for _, got := range fds {
			_ = unix.Close(got)
		}
		return err == nil
	}

	var hog []int
	lab.As(t, 2001, func() {
		for range 3 * 64 {
			c := connect(t, path)
			if err := unix.Send(c.fd, asks, unix.MSG_NOSIGNAL); err != nil {
				t.Error(err)
				return
			}
			poll := []unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLIN}}
			for _, err := unix.Poll(poll, -1); errors.Is(err, unix.EINTR); _, err = unix.Poll(poll, -1) {
			}
			hog = append(hog, c.fd)
		}
	})
	lab.As(t, 2002, func() {
		w, err := shmwords.Take(path, "app", shmwords.Options{})
		if err != nil {
			t.Errorf("the other user: %v", err)
			return
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	lab.As(t, 2001, func() {
		_, err := shmwords.Take(path, "app", shmwords.Options{})
		if err == nil || !strings.Contains(err.Error(), "do not receive the replies") {
			t.Errorf("the user itself: %v", err)
		}
	})
	got := 0
	for _, fd := range hog {
		if with(fd) {
			got++
		}
	}
	if got != 64 {
		t.Errorf("%d replies with a descriptor waited, want 64", got)
	}
	lab.As(t, 2001, func() {
		w, err := shmwords.Take(path, "app", shmwords.Options{})
		if err != nil {
			t.Errorf("the user itself, when it has received: %v", err)
			return
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}
