package words_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/shm"
	shmwords "github.com/flowtally/flowtally/shm/words"
)

// instance runs an instance with reserved words and nothing else.
func instance(t *testing.T, path string, names ...string) dataplane.Service {
	t.Helper()
	svc, err := engine.New(t.Context(), dataplane.Config{
		Instance: "words", Words: names, Mirror: dataplane.MirrorConfig{Path: path, Counters: 64, History: -1},
		Poll: dataplane.PollConfig{Period: time.Millisecond, IdlePeriod: time.Millisecond},
	}, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = svc.Close() })
	return svc
}

func mirror(t *testing.T) string { return filepath.Join(t.TempDir(), "m.mirror") }

// until waits for a state.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

func take(t *testing.T, path, name string) *shmwords.Words {
	t.Helper()
	w, err := shmwords.Take(path, name, shmwords.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func open(t *testing.T, path string) *shm.Reader {
	t.Helper()
	r, err := shm.Open(path, shm.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// device returns the words of a counter as a reader has them.
func device(t *testing.T, r *shm.Reader, name string) shm.Device {
	t.Helper()
	h, err := r.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	d, err := r.Device(h)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func wantWords(t *testing.T, d *shm.Device, comp, errs uint64) {
	t.Helper()
	if c, e, err := d.Load(); err != nil || c != comp || e != errs {
		t.Errorf("the words have %d and %d (%v), want %d and %d", c, e, err, comp, errs)
	}
}

// state returns the state of reserved words.
func state(t *testing.T, svc dataplane.Service, name string) dataplane.WordsState {
	t.Helper()
	list, err := svc.ReservedWords(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range list {
		if w.Name == name {
			return w.State
		}
	}
	return ""
}

// client is a connection to the socket as a hostile program has it: it writes the messages by itself.
type client struct {
	t  *testing.T
	fd int
}

func connect(t *testing.T, path string) *client {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: shmwords.Path(path)}); err != nil {
		t.Fatal(err)
	}
	return &client{t, fd}
}

// send sends bytes and returns the reply's errno and its descriptor, or -1.
func (c *client) send(message []byte) (errno unix.Errno, number uint64, fd int) {
	c.t.Helper()
	if err := unix.Send(c.fd, message, unix.MSG_NOSIGNAL); err != nil {
		c.t.Fatal(err)
	}
	b, control := make([]byte, 256), make([]byte, unix.CmsgSpace(16))
	n, controls, _, _, err := unix.Recvmsg(c.fd, b, control, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		c.t.Fatal(err)
	}
	if n == 0 {
		return unix.ECONNRESET, 0, -1
	}
	fd = -1
	if list, err := unix.ParseSocketControlMessage(control[:controls]); err == nil && len(list) == 1 {
		if fds, err := unix.ParseUnixRights(&list[0]); err == nil && len(fds) == 1 {
			fd = fds[0]
			c.t.Cleanup(func() { _ = unix.Close(fd) })
		}
	}
	return unix.Errno(binary.NativeEndian.Uint32(b[16:])), binary.NativeEndian.Uint64(b[24:]), fd
}

// A program that has words can spoil these alone. It cannot change the length of its file, so that no reader faults. A
// file that it keeps after its words were released has the words of no counter.
func TestHostileProgramSpoilsItsOwnWordsAlone(t *testing.T) {
	path := mirror(t)
	svc := instance(t, path, "good", "bad")
	good := take(t, path, "good")
	good.Add(1000, 7)
	r := open(t, path)
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
	for _, fill := range []byte{0xff, 0x80, 0, 1} {
		copy(mem, bytes.Repeat([]byte{fill}, len(mem)))
		if _, _, err := badWords.Load(); err != nil {
			t.Errorf("the spoilt words: %v", err)
		}
		wantWords(t, &goodWords, 1000, 7)
	}
	if err := unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096); err != nil {
		t.Fatal(err)
	}
	wantWords(t, &badWords, 0, 0)
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

	// The words of a program that was ended are others' no more: it goes on writing, and its counter does not change.
	binary.NativeEndian.PutUint64(mem, 5)
	until(t, "the mirror has the words", func() bool { return completions(t, r, "bad") >= 5 })
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
	until(t, "the mirror has the next program's words", func() bool { return completions(t, r, "bad") == 3 })
	if got := completions(t, r, "good"); got != 1000 {
		t.Errorf("the other counter has %d completions, want 1000", got)
	}
	problems, err := shm.Check(path)
	if err != nil || len(problems) > 0 {
		t.Errorf("the mirror: %v %v", problems, err)
	}
}

// completions returns the ordinary value of a counter.
func completions(t *testing.T, r *shm.Reader, name string) uint64 {
	t.Helper()
	h, err := r.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	c, err := r.Counter(h)
	if err != nil {
		t.Fatal(err)
	}
	v, err := c.Load()
	if err != nil {
		t.Fatal(err)
	}
	return v.Completions()
}

// Requests that no program of ours sends are refused, and the socket serves the next client.
func TestHostileRequests(t *testing.T) {
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

// Clients that connect and send nothing, or hold as many connections as they can, keep no program from its words for
// longer than a client may take over its request.
func TestSilentClients(t *testing.T) {
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
	until(t, "the words are taken", func() bool {
		w, err := shmwords.Take(path, "app", shmwords.Options{})
		if err == nil {
			err = w.Close()
		}
		return err == nil
	})
}

// Words that are given back are free at once, and the total goes on without a discontinuity. The words of a program that
// ended otherwise are abandoned, and can be taken after the cool-down.
func TestWordsGoRound(t *testing.T) {
	path := mirror(t)
	svc := instance(t, path, "app")
	r := open(t, path)
	var total uint64
	for i := range uint64(5) {
		w := take(t, path, "app")
		if s := state(t, svc, "app"); s != dataplane.WordsTaken {
			t.Errorf("taken: %s", s)
		}
		w.Add(i+1, 0)
		total += i + 1
		d := device(t, r, "app")
		wantWords(t, &d, total, 0)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if s := state(t, svc, "app"); s != dataplane.WordsFree {
			t.Errorf("given back: %s", s)
		}
		if _, _, err := d.Load(); !errors.Is(err, shm.ErrNoDevice) {
			t.Errorf("a reader of words that were given back: %v", err)
		}
	}
	until(t, "the mirror has the total", func() bool { return completions(t, r, "app") == total })
	errno, _, fd := abandon(t, path)
	if errno != 0 {
		t.Fatal(errno)
	}
	until(t, "abandoned", func() bool { return state(t, svc, "app") == dataplane.WordsAbandoned })
	d := device(t, r, "app")
	wantWords(t, &d, total, 0)
	// The device of the dead program has not stopped yet: its last completions count.
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], 9)
	if _, err := unix.Pwrite(fd, b[:], 0); err != nil {
		t.Fatal(err)
	}
	total += 9
	wantWords(t, &d, total, 0)
	if _, err := shmwords.Take(path, "app", shmwords.Options{}); !errors.Is(err, shmwords.ErrInUse) {
		t.Errorf("taking abandoned words at once: %v, want ErrInUse", err)
	}
	var w *shmwords.Words
	until(t, "the cool-down is over", func() (ok bool) {
		var err error
		w, err = shmwords.Take(path, "app", shmwords.Options{})
		return err == nil
	})
	defer w.Close()
	w.Add(1, 1)
	d = device(t, r, "app")
	wantWords(t, &d, total+1, 1)
	all, err := r.Entries()
	if err != nil || len(all) != 1 || all[0].Continuity.Discontinuities != 1 {
		t.Errorf("%+v: %v, want one discontinuity", all, err)
	}
}

// abandon takes words and ends the connection, and returns the descriptor that a device would go on writing to.
func abandon(t *testing.T, path string) (unix.Errno, uint64, int) {
	t.Helper()
	c := connect(t, path)
	errno, number, fd := c.send(shmwords.Request{Kind: shmwords.TakeWords, Name: "app", Limit: math.MaxUint64}.Message())
	if err := unix.Shutdown(c.fd, unix.SHUT_RDWR); err != nil {
		t.Fatal(err)
	}
	return errno, number, fd
}

// Reserving refuses names that exist and too many words, and a counter that is released is gone for its readers.
func TestReserving(t *testing.T) {
	path := mirror(t)
	svc := instance(t, path, "app")
	ctx := t.Context()
	for name, want := range map[string]error{"app": dataplane.ErrExists, "": dataplane.ErrInvalid, "a b": dataplane.ErrInvalid} {
		if _, err := svc.ReserveWords(ctx, name); !errors.Is(err, want) {
			t.Errorf("reserving %q: %v, want %v", name, err, want)
		}
	}
	n := 1
	for ; ; n++ {
		_, err := svc.ReserveWords(ctx, fmt.Sprint("w", n))
		if errors.Is(err, dataplane.ErrFull) {
			break
		}
		if err != nil || n > 1000 {
			t.Fatal(err)
		}
	}
	if list, err := svc.ReservedWords(ctx); err != nil || len(list) != n {
		t.Errorf("%d words are listed, want %d (%v)", len(list), n, err)
	}
	r := open(t, path)
	w := take(t, path, "w1")
	w.Add(1, 0)
	d := device(t, r, "w1")
	if err := svc.ReleaseWords(ctx, "w1"); err != nil {
		t.Fatal(err)
	}
	if err := svc.ReleaseWords(ctx, "w1"); !errors.Is(err, dataplane.ErrNotFound) {
		t.Errorf("releasing twice: %v", err)
	}
	if _, _, err := d.Load(); !errors.Is(err, shm.ErrGone) && !errors.Is(err, shm.ErrNoDevice) {
		t.Errorf("the words of a released counter: %v", err)
	}
	until(t, "the program learns of the release", func() bool { return !w.Served() })
	if _, err := svc.ReserveWords(ctx, "w1"); err != nil {
		t.Errorf("reserving again: %v", err)
	}
	if err := svc.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	if _, err := svc.ReserveWords(ctx, "x"); !errors.Is(err, dataplane.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// The total of a counter never goes down, and never jumps by the range of a word, whatever its owner writes there: it
// stands still, then goes on with one discontinuity.
func TestWordsThatGoBackwards(t *testing.T) {
	for _, tt := range []struct {
		name  string
		limit uint64
		write [8]byte // over the word 1000
	}{
		{"smaller", math.MaxUint64, word(5)},
		{"the largest number", math.MaxUint64, word(math.MaxUint64)},
		{"zero", math.MaxUint64, word(0)},
		{"smaller, of a narrow device", 1 << 24, word(5)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := mirror(t)
			instance(t, path, "app")
			r := open(t, path)
			evil := connect(t, path)
			errno, _, fd := evil.send(shmwords.Request{Kind: shmwords.TakeWords, Name: "app", Limit: tt.limit}.Message())
			if errno != 0 {
				t.Fatal(errno)
			}
			write := func(b [8]byte) {
				t.Helper()
				if _, err := unix.Pwrite(fd, b[:], 0); err != nil {
					t.Fatal(err)
				}
			}
			write(word(1000))
			until(t, "the mirror has the words", func() bool { return completions(t, r, "app") == 1000 })
			write(tt.write)
			until(t, "a discontinuity", func() bool {
				if got := completions(t, r, "app"); got != 1000 {
					t.Fatalf("the counter shows %d completions, want 1000", got)
				}
				all, err := r.Entries()
				return err == nil && len(all) == 1 && all[0].Continuity.Discontinuities == 1
			})
			d := device(t, r, "app")
			wantWords(t, &d, 1000, 0)
			next := binary.NativeEndian.Uint64(tt.write[:]) + 3
			write(word(next))
			until(t, "the total goes on", func() bool { return completions(t, r, "app") == 1003 })
		})
	}
}

func word(v uint64) (b [8]byte) {
	binary.NativeEndian.PutUint64(b[:], v)
	return b
}

// The total that one program has left stays when the next one spoils its words before a poll cycle has read them.
func TestSpoiltWordsKeepTheTotalBefore(t *testing.T) {
	path := mirror(t)
	svc, err := engine.New(t.Context(), dataplane.Config{
		Instance: "words", Words: []string{"app"}, Mirror: dataplane.MirrorConfig{Path: path, Counters: 64, History: -1},
		Poll: dataplane.PollConfig{Period: time.Hour, IdlePeriod: time.Hour}, // the test reads as the poller would
	}, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = svc.Close() })
	want := func(n uint64) {
		t.Helper()
		var got [1]backend.Pair
		if err := svc.Set.Read([]uint32{0}, got[:]); err != nil || got[0].Packets != n {
			t.Errorf("%d completions, %v, want %d", got[0].Packets, err, n)
		}
	}
	w := take(t, path, "app")
	w.Add(100, 0)
	want(100)
	w.Add(10, 0)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	want(110)
	evil := connect(t, path)
	errno, _, fd := evil.send(shmwords.Request{Kind: shmwords.TakeWords, Name: "app", Limit: shmwords.LeastLimit}.Message())
	if errno != 0 {
		t.Fatal(errno)
	}
	b := word(1 << 40)
	if _, err := unix.Pwrite(fd, b[:], 0); err != nil {
		t.Fatal(err)
	}
	want(110)
	if errno, _, _ := evil.send(shmwords.Request{Kind: shmwords.ReturnWords}.Message()); errno != unix.ECONNRESET {
		t.Errorf("giving back: %v", errno)
	}
	want(110)
}
