//go:build releases

package rdmacore

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/fence"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// TestKernelFirstHourOfAnEFA types the commands of "The first hour with an EFA" in docs/rdma.md, over a release whose
// libefa has no completion counters and over one whose libefa has them. The output is what the document shows.
func TestKernelFirstHourOfAnEFA(t *testing.T) { firstHour(t, "efa_0", "") }

// TestKernelFirstHourOfAConnectX does so for "The first hour with a ConnectX", over a release in which a command reads
// one counter, and over one in which it reads 128.
func TestKernelFirstHourOfAConnectX(t *testing.T) { firstHour(t, "mlx5_0", "eth0") }

// firstHour runs the fences of docs/rdma.md that name the calling test. A fence "over 44.0" is of that release alone.
// The host has one device.
func firstHour(t *testing.T, device, netdev string) {
	need.Root(t)
	need.BPF(t)
	need.Tool(t, "bash", "env", "chroot", "sh")
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "rdma.md"))
	if err != nil {
		t.Fatal(err)
	}
	fences, _ := fence.Parse(string(text)) // TestFencesSayHowTheyRun reports its mistakes
	for _, c := range []struct{ suite, without string }{
		{Suites()[0], ""},
		{Suites()[2], ""},
		{Suites()[2], "comp_cntr"},
	} {
		if device != "efa_0" && c.without != "" {
			continue
		}
		t.Run(strings.TrimSpace(c.suite+" "+c.without), func(t *testing.T) {
			r := release(t, c.suite)
			h := newHost(t, r.NewRoot(t), device, netdev, ibvtest.Env{Without: strings.Fields(c.without)})
			over := fmt.Sprintf("%d.%d", r.Major, r.Minor)
			if c.without != "" {
				over += ", without " + c.without
			}
			name, _, _ := strings.Cut(t.Name(), "/")
			ran := 0
			for _, f := range fences {
				_, of, named := strings.Cut(f.NotRun, name+" runs it")
				release, one := strings.CutPrefix(of, " over ")
				if !named || one && release != over {
					continue
				}
				h.walk(t, f)
				ran++
			}
			if ran < 3 {
				t.Errorf("docs/rdma.md has %d fences for %s over %s", ran, name, r)
			}
		})
	}
}

// host is a machine with one RDMA device. Its programs of flowtally run in the root of a release; its shell, and what
// else the document calls, are this machine's.
type host struct {
	root *Root
	env  []string
	near *lab.Netns
	do   chan func()
	jobs []*job
}

// job is a command in the background.
type job struct {
	cmd *exec.Cmd
	out *buffer
}

// buffer is the output of a command that may still write.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// newHost makes the host: the network of eth0 with a neighbor behind it, and namespaces that end with the test. e describes the
// device, whose netdev is eth0 if it has no other.
func newHost(t *testing.T, root *Root, device, netdev string, e ibvtest.Env) *host {
	t.Helper()
	bin := filepath.Dir(program(t))
	var netdevs []string // of both devices, because the kernel in software knows a device by its number
	for i, d := range Devices() {
		e.Devices = append(e.Devices, ibvtest.Device{Name: d.Name, Netdev: cmp.Or(netdev, "eth0")})
		netdevs = append(netdevs, "")
		if d.Name == device {
			netdevs[i] = netdev
			continue
		}
		for _, link := range []string{"infiniband/" + d.Name, fmt.Sprintf("infiniband_verbs/uverbs%d", i)} {
			if err := os.Remove(filepath.Join(root.Dir, "sys/class", link)); err != nil {
				t.Fatal(err)
			}
		}
	}
	kernel, err := root.preload(filepath.Join(bin, "ibvtest", "uverbs.so"), netdevs...)
	if err != nil {
		t.Fatal(err)
	}
	env, err := exec.LookPath("env")
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{filepath.Join(bin, "flowtally"): "flowtally", filepath.Join(bin, "flowtally-plugin"): "flowtally-plugin", env: "env"} {
		if err := copyFile(from, filepath.Join(root.Dir, to)); err != nil {
			t.Fatal(err)
		}
	}
	if err := copyTree(filepath.Join("..", "..", "..", "configs"), filepath.Join(root.Dir, "configs")); err != nil {
		t.Fatal(err)
	}
	kernel = append(kernel, e.Environ()...)
	kernel = append(kernel, "NO_COLOR=1", "COLUMNS=200")
	wrapper := fmt.Sprintf("#!/bin/sh\nexec chroot %s /env -i '%s' ${FLOWTALLY_INSTANCE:+FLOWTALLY_INSTANCE=$FLOWTALLY_INSTANCE} /flowtally \"$@\"\n", root.Dir, strings.Join(kernel, "' '"))
	commands := t.TempDir()
	if err := os.WriteFile(filepath.Join(commands, "flowtally"), []byte(wrapper), 0o755); err != nil {
		t.Fatal(err)
	}

	h := &host{
		root: root,
		env:  append(os.Environ(), "PATH="+commands+":"+os.Getenv("PATH"), "NO_COLOR=1", "COLUMNS=200"),
		do:   make(chan func()),
	}
	h.enter(t)
	return h
}

// enter starts the thread of the host, in namespaces of its own. Programs that it starts are in them.
func (h *host) enter(t *testing.T) {
	t.Helper()
	near, far := newNetns(t), newNetns(t)
	h.near = near
	pair, err := lab.NewPair(near, far, "eth0", "far0", lab.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pair.Close() })
	err = errors.Join(pair.A.AddAddr(netip.MustParsePrefix("192.0.2.10/24")), pair.B.AddAddr(netip.MustParsePrefix("192.0.2.1/24")))
	if err != nil {
		t.Fatal(err)
	}

	ready, ended := make(chan error), make(chan error, 1)
	go func() {
		ended <- near.Do(func() error {
			ns, err := os.Open("/proc/thread-self/ns/net")
			if err != nil {
				return err
			}
			defer ns.Close()
			return h.root.mounted(func() error {
				if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil { // it has a thread of its own
					return err
				}
				// The mirrors of this machine's instances are no part of the host.
				shm := filepath.Join(h.root.Dir, "dev/shm")
				ready <- unix.Mount("tmpfs", shm, "tmpfs", 0, "mode=1777")
				for f := range h.do {
					f()
				}
				return nil
			})
		})
	}()
	select {
	case err = <-ready:
	case err = <-ended:
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.endJobs(t)
		close(h.do)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// walk runs the commands of a fence, and compares their output with what the document shows.
func (h *host) walk(t *testing.T, f fence.Fence) {
	t.Helper()
	all, err := f.Commands()
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range all {
		if assigned, is := strings.CutPrefix(c.Text, "export "); is {
			assigned, _, _ = strings.Cut(assigned, " ") // a comment
			h.env = append(h.env, assigned)
			continue
		}
		var stdout, both buffer
		cmd := exec.Command("bash", "-c", c.Text)
		cmd.Dir, cmd.Env = h.root.Dir, h.env
		cmd.Stdout, cmd.Stderr = writers{&stdout, &both}, &both
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := h.start(cmd); err != nil {
			t.Fatal(err)
		}
		last := i == len(all)-1
		if last && f.Until != "" {
			h.jobs = append(h.jobs, &job{cmd, &both})
			lab.Eventually(t, fmt.Sprintf("the output of %q with %q", c.Text, f.Until), func() bool { return strings.Contains(both.String(), f.Until) })
		} else if err := cmd.Wait(); (err != nil) != (last && f.Fails) {
			t.Fatalf("docs/rdma.md:%d: %s\nended with %v; its output:\n%s", c.Line, c.Text, err, both.String())
		}
		t.Logf("# %s\n%s", c.Text, both.String())
		if len(c.Output) > 0 && !fence.Matches(c.Output, stdout.String()) && !fence.Matches(c.Output, both.String()) {
			t.Errorf("docs/rdma.md:%d: %s\nthe document shows:\n%s\nthe command printed:\n%s", c.Line, c.Text, strings.Join(c.Output, "\n"), both.String())
		}
	}
}

// writers writes to both buffers.
type writers [2]*buffer

func (w writers) Write(p []byte) (int, error) {
	_, _ = w[0].Write(p)
	return w[1].Write(p)
}

// start starts a command in the namespaces of the host.
func (h *host) start(cmd *exec.Cmd) error {
	err := make(chan error)
	h.do <- func() { err <- cmd.Start() }
	return <-err
}

// endJobs ends the commands in the background, the last one first.
func (h *host) endJobs(t *testing.T) {
	for i := len(h.jobs) - 1; i >= 0; i-- {
		j := h.jobs[i]
		_ = syscall.Kill(-j.cmd.Process.Pid, syscall.SIGTERM)
		if err := j.cmd.Wait(); err != nil && !strings.Contains(err.Error(), "terminated") {
			t.Errorf("a command in the background ended with %v; its output:\n%s", err, j.out)
		}
	}
}
