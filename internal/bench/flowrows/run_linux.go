package flowrows

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

// run starts `flowtally run` with n flows, and returns when it replies on its socket.
func (s *site) run(ctx context.Context, cfg dataplane.Config, n int) (*subject, error) {
	program := filepath.Join(s.bin, "flowtally")
	for _, path := range []string{program, program + "-plugin"} {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("looking for the programs that `make build` makes: %w", err)
		}
	}
	base := strings.TrimSuffix(cfg.Mirror.Path, ".mirror")
	file, socket := base+".yaml", base+".sock"
	if err := os.WriteFile(file, configuration(cfg, n), 0o600); err != nil {
		return nil, fmt.Errorf("writing a configuration: %w", err)
	}
	var said bytes.Buffer
	cmd := exec.Command(program, "run", "--config", file, "--socket", socket)
	cmd.Stderr = &said
	if err := s.ground.ns.Do(cmd.Start); err != nil {
		return nil, fmt.Errorf("starting flowtally run: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	s.open.Add(func() error { return stop(cmd.Process, ended) })
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	svc, info, err := dial(ctx, socket, ended)
	if err != nil {
		return nil, fmt.Errorf("flowtally run: %w: %s", err, said.String())
	}
	s.open.Add(svc.Close)
	pids := []int{cmd.Process.Pid, info.PID}
	return &subject{svc: svc, socket: socket, pids: pids, cpu: cpuOf(pids)}, nil
}

// dial waits until an instance replies at socket.
func dial(ctx context.Context, socket string, ended chan error) (dataplane.Service, dataplane.Info, error) {
	for {
		svc, err := plugin.Dial(ctx, socket)
		if err == nil {
			info, err := svc.Info(ctx)
			if err == nil {
				return svc, info, nil
			}
			svc.Close()
		}
		select {
		case err := <-ended:
			ended <- err
			return nil, dataplane.Info{}, fmt.Errorf("it ended: %w", errors.Join(err, errors.New("before it replied")))
		case <-ctx.Done():
			return nil, dataplane.Info{}, fmt.Errorf("waiting for its control socket: %w", errors.Join(ctx.Err(), err))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stop ends a process in order, or by force when it takes too long.
func stop(p *os.Process, ended chan error) error {
	_ = p.Signal(syscall.SIGTERM)
	select {
	case <-ended:
		return nil
	case <-time.After(patience):
		return errors.Join(fmt.Errorf("ending process %d: it did not end within %v", p.Pid, patience), p.Kill())
	}
}

// configuration is the file of an instance of n flows.
func configuration(cfg dataplane.Config, n int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "instance: %s\nbackend: %s\ninterfaces: [%s]\n", cfg.Instance, cfg.Backend, cfg.Interfaces[0].Name)
	fmt.Fprintf(&b, "mirror: {path: %s, counters: %d}\n", cfg.Mirror.Path, cfg.Mirror.Counters)
	fmt.Fprintf(&b, "poll: {period: %s}\n", cfg.Poll.Period)
	fmt.Fprintf(&b, "xdp: {pin_dir: %s, max_flows: %d}\nflows:\n", cfg.XDP.PinDir, cfg.XDP.MaxFlows)
	for i := range n {
		fmt.Fprintf(&b, "- {name: %s, match: %s}\n", numbered(i).Name, match(i))
	}
	return b.Bytes()
}

// cpuOf is the CPU time of other processes and of this one.
func cpuOf(pids []int) bench.Clock {
	return func() (int64, error) {
		sum, err := bench.ProcessCPU()
		if err != nil {
			return 0, err
		}
		for _, pid := range pids {
			own, err := cpuTime(pid)
			if err != nil {
				return 0, err
			}
			sum += own
		}
		return sum, nil
	}
}

// cpuTime is the CPU time of another process.
func cpuTime(pid int) (int64, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &t); err != nil { // clock_getcpuclockid(3)
		return 0, fmt.Errorf("reading the CPU time of process %d: %w", pid, err)
	}
	return t.Nano(), nil
}

// addByCommand adds a flow as a person does.
func (s *site) addByCommand(ctx context.Context, to *subject) (int64, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "flowtally"), "flows", "add", "--socket", to.socket, numbered(many).Name, match(many))
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("starting flowtally flows add: %w", err)
	}
	// Its clock is read before it is reaped: wait4 returns times in ticks.
	var spent int64
	err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
	if err == nil {
		spent, err = cpuTime(cmd.Process.Pid)
	}
	if err := errors.Join(cmd.Wait(), err); err != nil {
		return 0, fmt.Errorf("flowtally flows add: %w: %s", err, said.String())
	}
	return spent, nil
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
