//go:build !linux

package bench

import (
	"runtime"

	"github.com/flowtally/flowtally/probe"
)

func unsupported(feature string) error {
	return &probe.UnsupportedError{Feature: feature, Reason: "needs Linux, this is " + runtime.GOOS}
}

// ThreadCPU is the CPU time of the calling thread.
func ThreadCPU() (int64, error) { return 0, unsupported("CLOCK_THREAD_CPUTIME_ID") }

// ProcessCPU is the CPU time of all threads of this process.
func ProcessCPU() (int64, error) { return 0, unsupported("CLOCK_PROCESS_CPUTIME_ID") }

// OthersCPU is the CPU time of all threads of this process but the calling one.
func OthersCPU() (int64, error) { return 0, unsupported("CLOCK_PROCESS_CPUTIME_ID") }

// CPUOf is the CPU time of all threads of another process.
func CPUOf(int) (int64, error) { return 0, unsupported("clock_getcpuclockid") }

// CPUs lists the CPUs that this process may run on.
func CPUs() ([]int, error) { return nil, unsupported("CPU affinity") }

// PinThread lets the calling thread run on cpu alone.
func PinThread(int) error { return unsupported("CPU affinity") }

// Pinned runs f on a thread of its own that may run on cpu alone.
func Pinned(int, func()) error { return unsupported("CPU affinity") }
