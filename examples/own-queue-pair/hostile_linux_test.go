package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/published"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/shm/shmtest"
	"github.com/flowtally/flowtally/shm/words"
)

// spoils is reserved words in the hands of a hostile program, with the descriptor of their file.
type spoils struct {
	fd  int
	mem []byte
}

func (s spoils) Memory() (comp, errs []byte) { return s.mem[0:8:8], s.mem[8:16:16] }

func (s spoils) Add(comp, _ uint64) {
	binary.NativeEndian.PutUint64(s.mem, binary.NativeEndian.Uint64(s.mem)+comp)
}

// seize takes reserved words by the protocol of the socket.
func seize(mirror, name string) (s spoils, err error) {
	c, _, err := words.Connect(words.Path(mirror), func(uint32) error { return nil })
	if err != nil {
		return s, err
	}
	if err := unix.Send(c, words.Request{Kind: words.TakeWords, Name: name, Limit: math.MaxUint64}.Message(), 0); err != nil {
		return s, err
	}
	_, fds, err := words.Receive(c, 128)
	if err != nil || len(fds) != 1 {
		return s, fmt.Errorf("%d descriptors: %w", len(fds), err)
	}
	s.fd = fds[0]
	s.mem, err = unix.Mmap(s.fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return s, err
}

// attack changes the file. It returns an error if a change that must be refused succeeds.
func (s spoils) attack() error {
	for what, err := range map[string]error{
		"cutting it short": unix.Ftruncate(s.fd, 0),
		"making it longer": unix.Ftruncate(s.fd, 1<<30),
		"reserving more":   unix.Fallocate(s.fd, 0, 4096, 1<<30),
	} {
		if !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("%s: %v, want EPERM", what, err)
		}
	}
	return unix.Fallocate(s.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096)
}

// hostileMain is the hostile program. Its queue pairs count into its words. Until standard
// input ends it attacks the file and overwrites the words between its operations.
func hostileMain() {
	log.SetFlags(0)
	var o options
	flag.StringVar(&o.mirror, "mirror", "", "")
	flag.StringVar(&o.words, "words", "", "")
	flag.StringVar(&o.device, "device", "", "")
	flag.StringVar(&o.lib.Library, "library", "", "")
	flag.StringVar(&o.lib.MLX5, "mlx5", "", "")
	flag.StringVar(&o.lib.EFA, "efa", "", "")
	flag.Parse()
	var over atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		over.Store(true)
	}()
	if err := hostile(o, &over); err != nil {
		log.Fatal(err)
	}
}

func hostile(o options, over *atomic.Bool) error {
	s, err := seize(o.mirror, o.words)
	if err != nil {
		return err
	}
	lib, err := ibv.Load(o.lib)
	if err != nil {
		return err
	}
	dev, err := lib.Open(o.device)
	if err != nil {
		return err
	}
	p := &pairs{dev: dev, closing: func(io.Closer) {}} // the end of the process closes all
	if _, err := p.make(s, o); err != nil {
		return err
	}
	for i := 0; !over.Load(); i++ {
		if err := p.write(100); err != nil {
			return err
		}
		copy(s.mem, bytes.Repeat([]byte{[]byte{0xff, 0x80, 0, 1}[i%4]}, len(s.mem)))
		if err := s.attack(); err != nil {
			return err
		}
	}
	return nil
}

// A program that has words, and a device that counts there, truncates and overwrites its file, and keeps it when the words
// are another program's. No reader faults, its own counter never goes down, and no other counter changes.
func TestHostileProgramWithADevice(t *testing.T) { hostileProgram(t, softNIC(t, ibvtest.Env{})) }

func hostileProgram(t *testing.T, n *nic) {
	svc, path := n.instance(t, "good", "bad")
	r := shmtest.MustOpen(t, path)
	evil := n.self(t, "hostile", path, "bad")
	var last uint64
	spoilt := func() {
		t.Helper()
		evil.running(t)
		now := published.Completions(t, r, "bad")
		if now < last {
			t.Fatalf("the counter of the hostile program went from %d to %d", last, now)
		}
		last = now
		if d, err := r.Device(shmtest.MustLookup(t, r, "bad")); err == nil { // the program may not have taken the words yet
			if _, _, err := d.Load(); err != nil && !errors.Is(err, shm.ErrStale) && !errors.Is(err, shm.ErrBusy) && !errors.Is(err, shm.ErrNoDevice) {
				t.Fatalf("reading the words of the hostile program: %v", err)
			}
		}
	}
	lab.Eventually(t, "the hostile program has spoilt its words twice", func() bool {
		spoilt()
		return entry(t, r, "bad").Continuity.Discontinuities >= 2
	})
	const count = 2000
	good := n.example(t, path, "good", "-count", fmt.Sprint(count), "-hold")
	lab.Eventually(t, "all completions of the other program", func() bool {
		good.running(t)
		spoilt()
		return published.Completions(t, r, "good") >= 2*count
	})
	_ = good.stdin.Close()
	if err := good.wait(); err != nil {
		t.Fatalf("%v\n%s", err, good.out)
	}
	// The hostile program keeps its file, and its device goes on there.
	if err := svc.ReleaseWords(t.Context(), "bad"); err != nil {
		t.Fatal(err)
	}
	if _, err := svc.ReserveWords(t.Context(), "bad"); err != nil {
		t.Fatal(err)
	}
	next := n.example(t, path, "bad", "-count", fmt.Sprint(count), "-hold")
	lab.Eventually(t, "all completions of the next program", func() bool {
		next.running(t)
		evil.running(t)
		return published.Completions(t, r, "bad") >= 2*count
	})
	_ = next.stdin.Close()
	if err := next.wait(); err != nil {
		t.Fatalf("%v\n%s", err, next.out)
	}
	for _, name := range []string{"good", "bad"} {
		if got := published.Completions(t, r, name); got != 2*count {
			t.Errorf("%s: %d completions, want %d", name, got, 2*count)
		}
		if e := entry(t, r, name); e.Continuity.Discontinuities != 0 {
			t.Errorf("%s: %d discontinuities", name, e.Continuity.Discontinuities)
		}
	}
	if problems, err := shm.Check(path); err != nil || len(problems) > 0 {
		t.Errorf("the mirror: %v %v", problems, err)
	}
	_ = evil.stdin.Close()
	if err := evil.wait(); err != nil {
		t.Errorf("%v\n%s", err, evil.out)
	}
	t.Logf("the hostile program brought its own counter to %d; the others have %d each", last, 2*count)
}
