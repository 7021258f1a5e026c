package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab/soft"
	"github.com/flowtally/flowtally/shm"
	"github.com/flowtally/flowtally/shm/shmtest"
)

// uverbs is below the host's RDMA libraries, in the programs too.
var uverbs soft.Kernel

// software has the shim in front of the host's libraries, for completion counters.
var software soft.Libraries

// runMain makes the test's program the example; its value "hostile" makes it the hostile program.
const runMain = "OWN_QUEUE_PAIR_MAIN"

func TestMain(m *testing.M) {
	switch os.Getenv(runMain) {
	case "":
	case "hostile":
		hostileMain()
		return
	default:
		main()
		return
	}
	uverbs.Preload()
	code := m.Run()
	if err := errors.Join(uverbs.Close(), software.Close()); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// nic is a device, and the libraries over which programs use it.
type nic struct {
	device string
	dir    string   // of mirrors
	seen   string   // by programs: dir
	args   []string // of the example: where its libraries are
	env    []string // of programs
	cc     []string // arguments of the compiler
	// start starts a program.
	start func(*exec.Cmd) error
	// loaded checks the libraries that a running program has loaded; nil: args names them.
	loaded func(t *testing.T, pid int)
}

// softNIC is a ConnectX in software below the host's libraries. Each program has its own. The shim has completion counters.
func softNIC(t *testing.T, env ibvtest.Env) *nic {
	t.Helper()
	shim := software.Shimmed(t)
	env.Devices = []ibvtest.Device{{Name: "mlx5_0", Netdev: "lo"}}
	n := &nic{
		device: "mlx5_0", dir: t.TempDir(), args: []string{"-library", shim.Library, "-mlx5", shim.MLX5, "-efa", shim.EFA},
		env: append(os.Environ(), env.Environ()...),
		// The runtime of the sanitizer wants to be before what is preloaded: in the program itself it is.
		cc:    []string{"-fsanitize=address,undefined", "-static-libasan", "-libverbs", "-lmlx5"},
		start: (*exec.Cmd).Start,
	}
	n.seen = n.dir
	return n
}

// instance runs an instance with reserved words and nothing else, and returns the path of its mirror.
func (n *nic) instance(t *testing.T, names ...string) (dataplane.Service, string) {
	t.Helper()
	f, err := os.CreateTemp(n.dir, "*.mirror")
	if err != nil {
		t.Fatal(err)
	}
	path := f.Name()
	if err := errors.Join(f.Close(), os.Remove(path)); err != nil {
		t.Fatal(err)
	}
	svc, err := engine.New(t.Context(), dataplane.Config{
		Instance: "own", Words: names, Mirror: dataplane.MirrorConfig{Path: path, Counters: 64, History: -1},
		Poll: dataplane.PollConfig{Period: time.Millisecond, IdlePeriod: time.Millisecond},
	}, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := svc.Close(); err != nil {
			t.Error(err)
		}
	})
	return svc, path
}

// process is a program that uses the device.
type process struct {
	pid   int
	kill  func() error
	stdin io.Closer
	out   *bytes.Buffer // to be read after the end
	ended chan struct{}
	err   error
}

// wait waits for the end of the program.
func (p *process) wait() error {
	<-p.ended
	return p.err
}

// running ends the test if the program has ended.
func (p *process) running(t *testing.T) {
	t.Helper()
	select {
	case <-p.ended:
		t.Fatalf("the program has ended: %v\n%s", p.err, p.out)
	default:
	}
}

// run starts the program at path.
func (n *nic) run(t *testing.T, path string, env []string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(path, args...)
	p := &process{out: new(bytes.Buffer), ended: make(chan struct{})}
	cmd.Env = slices.Concat(env, n.env)
	cmd.Stdout, cmd.Stderr = p.out, p.out
	var err error
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := n.start(cmd); err != nil {
		t.Fatal(err)
	}
	p.pid, p.kill = cmd.Process.Pid, cmd.Process.Kill
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.kill()
		_ = p.wait()
	})
	return p
}

// example starts the example in Go, with the words of a mirror.
func (n *nic) example(t *testing.T, mirror, words string, args ...string) *process {
	t.Helper()
	return n.self(t, "main", mirror, words, args...)
}

// self starts this test's program as the program that which names.
func (n *nic) self(t *testing.T, which, mirror, words string, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args = slices.Concat([]string{"-mirror", n.path(mirror), "-words", words, "-device", n.device}, n.args, args)
	return n.run(t, self, []string{runMain + "=" + which}, args...)
}

// path returns the path of a mirror as programs have it.
func (n *nic) path(mirror string) string { return filepath.Join(n.seen, filepath.Base(mirror)) }

// loadWords returns the words themselves, with no poller in between.
func loadWords(t *testing.T, r *shm.Reader, name string) (comp, errs uint64) {
	t.Helper()
	d, err := r.Device(shmtest.MustLookup(t, r, name))
	if err == nil {
		comp, errs, err = d.Load()
	}
	if err != nil {
		t.Fatal(err)
	}
	return comp, errs
}

// entry returns the mirror's entry of a counter.
func entry(t *testing.T, r *shm.Reader, name string) shm.Entry {
	t.Helper()
	all, err := r.Entries()
	for _, e := range all {
		if e.Name == name {
			return e
		}
	}
	t.Fatalf("no entry %s among %d: %v", name, len(all), err)
	return shm.Entry{}
}
