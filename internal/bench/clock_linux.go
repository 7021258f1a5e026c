package bench

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// ThreadCPU is the CPU time of the calling thread, to the nanosecond (getrusage
// is rounded to the tick): for sides that only compute, and for
// BPF_PROG_TEST_RUN. It leaves out the time that other processes run on the CPU.
func ThreadCPU() (int64, error) {
	return clock("CLOCK_THREAD_CPUTIME_ID", unix.CLOCK_THREAD_CPUTIME_ID)
}

// ProcessCPU is the CPU time of all threads of this process: for work that
// spreads over threads.
func ProcessCPU() (int64, error) {
	return clock("CLOCK_PROCESS_CPUTIME_ID", unix.CLOCK_PROCESS_CPUTIME_ID)
}

// OthersCPU is the CPU time of all threads of this process but the calling one.
func OthersCPU() (int64, error) {
	all, err := ProcessCPU()
	if err != nil {
		return 0, err
	}
	own, err := ThreadCPU()
	return all - own, err
}

// CPUOf is the CPU time of all threads of another process, also one that has ended and was not reaped.
func CPUOf(pid int) (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &ts); err != nil { // clock_getcpuclockid(3)
		return 0, fmt.Errorf("reading the CPU time of process %d: %w", pid, err)
	}
	return ts.Nano(), nil
}

func clock(name string, id int32) (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		return 0, fmt.Errorf("reading %s: %w", name, err)
	}
	return ts.Nano(), nil
}

// CPUs lists the CPUs that this process may run on, lowest first.
func CPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("reading the CPU affinity: %w", err)
	}
	var list []int
	for cpu := range 64 * len(set) { // IsSet returns false beyond the end
		if set.IsSet(cpu) {
			list = append(list, cpu)
		}
	}
	return list, nil
}

// PinThread lets the calling thread run on cpu alone. The goroutine must be locked to the thread.
func PinThread(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pinning to CPU %d: %w", cpu, err)
	}
	return nil
}

// Pinned runs f on a thread of its own that may run on cpu alone, and returns
// when f has. The thread ends with f, so that no other goroutine inherits its
// affinity.
func Pinned(cpu int, f func()) error {
	errc := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the runtime ends the thread with the goroutine
		if err := PinThread(cpu); err != nil {
			errc <- err
			return
		}
		f()
		errc <- nil
	}()
	return <-errc
}

// WithoutSignals runs f on a thread that takes none: a signal, the Go
// scheduler's among them, ends a test run early, and it is then begun again.
func WithoutSignals(f func() error) error {
	var all, old unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &old); err != nil {
		return fmt.Errorf("blocking signals: %w", err)
	}
	defer unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil)
	return f()
}
