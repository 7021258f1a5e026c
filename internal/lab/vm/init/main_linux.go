package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab/vm"
)

func main() {
	defer unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "init:", err)
		return
	}
	port, err := openPort(vm.EventsPath)
	if err != nil {
		fmt.Fprintln(os.Stderr, "init:", err)
		return
	}
	defer port.drain()
	if err := play(port); err != nil {
		port.say(vm.Event{Fatal: err.Error()})
		return
	}
	port.say(vm.Event{Done: true})
}

// mounts are those that a system has, in an order in which each finds its place.
var mounts = []struct{ what, where, options string }{
	{"proc", "/proc", ""},
	{"sysfs", "/sys", ""},
	{"devtmpfs", "/dev", "mode=0755"},
	{"devpts", "/dev/pts", "mode=0620,ptmxmode=0666"},
	{"tmpfs", "/dev/shm", "mode=1777"},
	{"tmpfs", "/run", "mode=0755"},
	{"tmpfs", "/tmp", "mode=1777"},
	{"tracefs", "/sys/kernel/tracing", ""},
	{"bpf", "/sys/fs/bpf", "mode=0700"},
}

func prepare() error {
	for _, m := range mounts {
		if err := os.MkdirAll(m.where, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.what, m.where, m.what, 0, m.options); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mounting %s: %w", m.where, err)
		}
	}
	// libibverbs pins the memory that it passes to a device.
	return unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
}

func play(port *port) error {
	text, err := os.ReadFile(vm.ScriptPath)
	if err != nil {
		return err
	}
	var script vm.Script
	if err := json.Unmarshal(text, &script); err != nil {
		return fmt.Errorf("reading the script: %w", err)
	}
	for _, m := range script.Modules {
		if err := load(m); err != nil {
			return fmt.Errorf("loading module %s: %w", m, err)
		}
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return fmt.Errorf("asking for the kernel's release: %w", err)
	}
	if err := port.say(vm.Event{Ready: unix.ByteSliceToString(name.Release[:])}); err != nil {
		return err
	}
	log, err := vm.OpenLog()
	if err != nil {
		return err
	}
	defer log.Close()
	if err := reportLog(log, "", port); err != nil {
		return err
	}
	for _, s := range script.Steps {
		exit := runStep(s, port)
		if err := reportLog(log, s.Name, port); err != nil {
			return err
		}
		if err := port.say(vm.Event{Exit: exit}); err != nil {
			return err
		}
	}
	return nil
}

// reportLog sends the new lines of the kernel's log.
func reportLog(log *vm.KernelLog, step string, port *port) error {
	lines, err := log.Read()
	for _, l := range lines {
		l.Step = step
		if err := port.say(vm.Event{Log: &l}); err != nil {
			return err
		}
	}
	return err
}

func load(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), "", 0)
}

// runStep runs one step and sends its output while it runs.
func runStep(s vm.Step, port *port) *vm.Exit {
	limit := time.Duration(s.Seconds) * time.Second
	if limit == 0 {
		limit = time.Minute
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.Args[0], s.Args[1:]...)
	cmd.Dir = s.Dir
	cmd.Env = append([]string{"PATH=/usr/sbin:/usr/bin", "HOME=/root", "TMPDIR=/tmp"}, s.Env...)
	cmd.Stdout = &stream{port: port, step: s.Name}
	cmd.Stderr = &stream{port: port, step: s.Name, stderr: true}
	// A process that a step leaves behind may hold the step's output open.
	cmd.WaitDelay = 2 * time.Second
	// A Go program then says where it hangs; WaitDelay is its time to.
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGQUIT) }
	start := time.Now()
	err := cmd.Run()
	exit := &vm.Exit{Step: s.Name, Took: time.Since(start)}
	if ctx.Err() != nil {
		exit.Error = fmt.Sprintf("still running after %v", limit)
	}
	var failed *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &failed):
		status := failed.Sys().(syscall.WaitStatus)
		if exit.Code = status.ExitStatus(); status.Signaled() {
			exit.Code = 128 + int(status.Signal())
		}
	default:
		exit.Code = 127
		exit.Error = err.Error()
	}
	return exit
}

// port is the serial port of the events, for several writers.
type port struct {
	mu sync.Mutex
	f  *os.File
}

// openPort makes the port carry bytes as they are.
func openPort(path string) (*port, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	fd := int(f.Fd())
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("reading the settings of %s: %w", path, err)
	}
	t.Iflag, t.Oflag, t.Lflag = 0, 0, 0
	t.Cflag = t.Cflag&^(unix.CBAUD|unix.CSIZE|unix.PARENB) | unix.B115200 | unix.CS8 | unix.CLOCAL
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, t); err != nil {
		return nil, fmt.Errorf("setting %s up: %w", path, err)
	}
	return &port{f: f}, nil
}

func (p *port) say(e vm.Event) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err = p.f.Write(append(line, '\n'))
	return err
}

// drain waits until the port has sent its buffer: powering off drops unsent bytes.
func (p *port) drain() {
	unix.IoctlSetInt(int(p.f.Fd()), unix.TCSBRK, 1)
}

// stream sends the bytes written to it as events.
type stream struct {
	port   *port
	step   string
	stderr bool
}

func (s *stream) Write(p []byte) (int, error) {
	err := s.port.say(vm.Event{Output: &vm.Output{Step: s.step, Stderr: s.stderr, Data: bytes.Clone(p)}})
	if err != nil {
		return 0, err
	}
	return len(p), nil
}
