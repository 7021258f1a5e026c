package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// QEMU is the program that runs machines.
const QEMU = "qemu-system-x86_64"

// Machine is one boot. Dir receives initramfs, console.log and events.jsonl,
// and keeps them.
type Machine struct {
	Kernel *Kernel
	Image  *Image // Run adds the script
	Dir    string
	Memory int // MiB; 0 means 1024
	CPUs   int // 0 means 2
}

// consoleTail is how much of the console an error shows.
const consoleTail = 6000

// Run boots, executes the script and returns its results. An error holds the end of the machine's
// console, and the result then has the events until the failure. When ctx ends first the machine is
// killed.
func (m Machine) Run(ctx context.Context, s Script) (*Result, error) {
	initrd, err := m.prepare(s)
	if err != nil {
		return nil, fmt.Errorf("packing the initramfs for kernel %s: %w", m.Kernel.Release, err)
	}
	console, events := filepath.Join(m.Dir, "console.log"), filepath.Join(m.Dir, "events.jsonl")
	for _, old := range []string{console, events} {
		if err := os.Remove(old); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	cmd := exec.CommandContext(ctx, QEMU, m.args(initrd, console, events)...)
	cmd.WaitDelay = 5 * time.Second
	// Also when this process is killed no machine is left behind. The signal is sent when the
	// thread ends that started it, which is therefore kept.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	out, runErr := cmd.CombinedOutput()
	runtime.UnlockOSThread()
	res, err := collectFile(events)
	if ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", ctx.Err(), ErrIncomplete)
	} else if runErr != nil {
		err = errors.Join(err, runErr)
	}
	if err == nil && res.Release != m.Kernel.Release {
		err = fmt.Errorf("it says that it is %q", res.Release)
	}
	if err != nil {
		return res, fmt.Errorf("running kernel %s: %w\n%s\n--- the end of %s\n%s",
			m.Kernel.Release, err, bytes.TrimSpace(out), console, tail(console))
	}
	return res, nil
}

func (m Machine) args(initrd, console, events string) []string {
	memory, cpus := m.Memory, m.CPUs
	if memory == 0 {
		memory = 1024
	}
	if cpus == 0 {
		cpus = 2
	}
	return []string{
		// KVM would be faster and is not to be had everywhere this runs.
		"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", fmt.Sprint(cpus), "-m", fmt.Sprint(memory),
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-monitor", "none",
		"-serial", "file:" + console, "-serial", "file:" + events,
		"-kernel", m.Kernel.Image, "-initrd", initrd,
		// A panic reboots, which ends the machine (-no-reboot). On a busy host the kernel takes a wrong frequency for the
		// TSC, so that time would run at many times its speed: the HPET has a known one. The others end what warns
		// there: the kernel's check of its timer, and its watches over the TSC and over CPUs that do nothing for a while.
		"-append", "console=ttyS0 loglevel=5 panic=-1 oops=panic random.trust_cpu=on no_timer_check" +
			" clocksource=hpet tsc=nowatchdog nowatchdog rcupdate.rcu_cpu_stall_suppress=1 workqueue.cpu_intensive_thresh_us=0",
	}
}

// prepare writes the initramfs with its script.
func (m Machine) prepare(s Script) (string, error) {
	text, err := json.MarshalIndent(s, "", "\t")
	if err != nil {
		return "", err
	}
	m.Image.Bytes(ScriptPath, text, 0o644)
	if err := os.MkdirAll(m.Dir, 0o755); err != nil {
		return "", err
	}
	f, err := os.Create(filepath.Join(m.Dir, "initramfs"))
	if err != nil {
		return "", err
	}
	return f.Name(), errors.Join(m.Image.Write(f), f.Close())
}

func collectFile(path string) (*Result, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Collect(f)
}

// tail returns the end of a file, or the reason why it cannot be read.
func tail(path string) []byte {
	data, err := os.ReadFile(path)
	if err != nil {
		return []byte(err.Error())
	}
	return data[max(0, len(data)-consoleTail):]
}
