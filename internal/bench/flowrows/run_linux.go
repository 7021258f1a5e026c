package flowrows

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/plugin"
)

// patience bounds the start of an instance, which reads 65,536 flows from a file.
const patience = 2 * time.Minute

// run starts `flowtally run` with n flows, which runs until the site closes.
func (s *site) run(ctx context.Context, cfg dataplane.Config, n int) (*subject, error) {
	file, err := write(cfg, n, usual)
	if err != nil {
		return nil, err
	}
	to, end, err := s.launch(ctx, file)
	if err == nil {
		s.open.Add(end)
	}
	return to, err
}

// launch starts `flowtally run` with a file, and returns when the instance is ready.
func (s *site) launch(ctx context.Context, file string) (_ *subject, end func() error, err error) {
	program := filepath.Join(s.bin, "flowtally")
	for _, path := range []string{program, program + "-plugin"} {
		if _, err := os.Stat(path); err != nil {
			return nil, nil, fmt.Errorf("looking for the programs that `make build` makes: %w", err)
		}
	}
	var open bench.Closers
	defer func() {
		if err != nil {
			err = errors.Join(err, open.Close())
		}
	}()

	base := strings.TrimSuffix(file, ".yaml")
	notes, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: base + ".notify", Net: "unixgram"})
	if err != nil {
		return nil, nil, fmt.Errorf("listening for the instance to be ready: %w", err)
	}
	open.Add(func() error { return errors.Join(notes.Close(), os.Remove(base+".notify")) })

	var said bytes.Buffer
	socket := base + ".sock"
	cmd := exec.Command(program, "run", "--config", file, "--socket", socket)
	cmd.Stderr = &said
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+base+".notify")
	if err := s.ground.ns.Do(cmd.Start); err != nil {
		return nil, nil, fmt.Errorf("starting flowtally run: %w", err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.Wait()
		notes.SetReadDeadline(time.Unix(1, 0)) // ready waits no longer
	}()
	open.Add(func() error { return stop(cmd.Process, ended) })

	if err := ready(ctx, notes); err != nil {
		err = errors.Join(err, stop(cmd.Process, ended)) // then nothing more is said
		return nil, nil, underLoad(fmt.Errorf("flowtally run: %w: %s", err, said.String()))
	}
	svc, err := plugin.Dial(ctx, socket)
	if err != nil {
		return nil, nil, err
	}
	open.Add(svc.Close)
	info, err := svc.Info(ctx)
	if err != nil {
		return nil, nil, err
	}
	pids := []int{cmd.Process.Pid, info.PID}
	return &subject{svc: svc, socket: socket, pids: pids, cpu: cpuOf(pids)}, open.Close, nil
}

// ready waits until an instance tells its service manager that it counts.
func ready(ctx context.Context, notes *net.UnixConn) error {
	defer context.AfterFunc(ctx, func() { notes.SetReadDeadline(time.Unix(1, 0)) })()
	if err := notes.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	state := make([]byte, 4096)
	for {
		n, err := notes.Read(state)
		if err != nil {
			return fmt.Errorf("waiting for the instance to be ready: %w", errors.Join(ctx.Err(), err))
		}
		if bytes.HasPrefix(state[:n], []byte("READY=1")) {
			return nil
		}
	}
}

// stop ends a process in order, or by force when it takes too long. ended has the process's end, and has it again for the
// next stop.
func stop(p *os.Process, ended chan error) error {
	_ = p.Signal(syscall.SIGTERM)
	select {
	case err := <-ended:
		ended <- err
		return nil
	case <-time.After(patience):
		return errors.Join(fmt.Errorf("ending process %d: it did not end within %v", p.Pid, patience), p.Kill())
	}
}

// usual is the port of every flow of a file that differs in none.
const usual = 443

// write writes the file of an instance of n flows. The flow in the middle has a port of its own.
func write(cfg dataplane.Config, n, port int) (path string, err error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "instance: %s\nbackend: %s\ninterfaces: [%s]\n", cfg.Instance, cfg.Backend, cfg.Interfaces[0].Name)
	fmt.Fprintf(&b, "mirror: {path: %s, counters: %d}\n", cfg.Mirror.Path, cfg.Mirror.Counters)
	fmt.Fprintf(&b, "poll: {period: %s}\n", cfg.Poll.Period)
	fmt.Fprintf(&b, "xdp: {pin_dir: %s, max_flows: %d}\nflows:\n", cfg.XDP.PinDir, cfg.XDP.MaxFlows)
	for i := range n {
		text := match(i)
		if i == n/2 {
			text = fmt.Sprintf("ipv4 dst %s tcp dport %d", address(i), port)
		}
		fmt.Fprintf(&b, "- {name: %s, match: %s}\n", numbered(i).Name, text)
	}

	path = strings.TrimSuffix(cfg.Mirror.Path, ".mirror") + ".yaml"
	if port != usual {
		path = strings.TrimSuffix(path, ".yaml") + fmt.Sprintf("-%d.yaml", port)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		return "", fmt.Errorf("writing a configuration: %w", err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, old, old); err != nil { // apply waits for a file that has just changed
		return "", fmt.Errorf("writing a configuration: %w", err)
	}
	return path, nil
}

// cpuOf is the CPU time of other processes and of this one.
func cpuOf(pids []int) bench.Clock {
	return func() (int64, error) {
		sum, err := bench.ProcessCPU()
		if err != nil {
			return 0, err
		}
		for _, pid := range pids {
			own, err := bench.CPUOf(pid)
			if err != nil {
				return 0, err
			}
			sum += own
		}
		return sum, nil
	}
}

// addByCommand adds a flow as a person does.
func (s *site) addByCommand(ctx context.Context, to *subject) (int64, error) {
	return s.command(ctx, "flows", "add", "--socket", to.socket, numbered(many).Name, match(many))
}

// command runs flowtally, and returns its CPU time.
func (s *site) command(ctx context.Context, args ...string) (spent int64, err error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "flowtally"), args...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("starting flowtally %s: %w", args[0], err)
	}
	// Its clock is read before it is reaped: wait4 returns times in ticks.
	err = unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
	if err == nil {
		spent, err = bench.CPUOf(cmd.Process.Pid)
	}
	if err := errors.Join(cmd.Wait(), err); err != nil {
		return 0, underLoad(fmt.Errorf("flowtally %s: %w: %s", args[0], err, said.String()))
	}
	return spent, nil
}

// underLoad marks an error of a program that did not get an answer in time: on a host without load it would have. The
// bench starts the program again.
func underLoad(err error) error {
	for _, late := range []string{"no reply in time", "no handshake in time", "has not answered within"} {
		if strings.Contains(err.Error(), late) {
			return fmt.Errorf("%w: %w", bench.ErrDisturbed, err)
		}
	}
	return err
}

// collected is how long the memory of an instance must not have fallen, for its collections to be over:
// each of its processes makes one a second after it has started.
const collected = 3 * time.Second

// anonymous is the anonymous memory of an instance's processes, once they have collected.
func (s *subject) anonymous(ctx context.Context) (bytes int64, err error) {
	for last := time.Now(); time.Since(last) < collected; {
		var now int64
		for _, pid := range s.pids {
			own, err := rssAnon(pid)
			if err != nil {
				return 0, err
			}
			now += own
		}
		if bytes == 0 || now < bytes {
			bytes, last = now, time.Now()
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("waiting for the memory of an instance to be collected: %w", ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
	return bytes, nil
}

func rssAnon(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("reading the memory of process %d: %w", pid, err)
			}
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("reading the memory of process %d: no RssAnon", pid)
}
