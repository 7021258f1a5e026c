package pollrows

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"github.com/flowtally/flowtally/internal/bench"
)

// idleName is the name of the floor of the idle rows.
const idleName = "idle"

// Floors are the programs that the rows start.
func Floors() map[string]bench.Floor { return map[string]bench.Floor{idleName: runIdle} }

// startIdleFloor starts the floor, and returns its process id.
func startIdleFloor(open *bench.Closers, period time.Duration, counters int) (int, error) {
	cmd, err := bench.FloorCommand(idleName, period.String(), strconv.Itoa(counters))
	if err != nil {
		return 0, err
	}
	alive, err := cmd.StdinPipe()
	if err != nil {
		return 0, fmt.Errorf("starting an idle process: %w", err)
	}
	cmd.Stderr = os.Stderr
	started := make(chan error, 1)
	go func() { started <- cmd.Start() }() // not on the thread that measures, whose CPU the process would inherit
	if err := <-started; err != nil {
		return 0, fmt.Errorf("starting an idle process: %w", err)
	}
	open.Add(func() error { return errors.Join(alive.Close(), cmd.Wait()) })
	return cmd.Process.Pid, nil
}

// runIdle wakes each period, reads the slots of so many counters on every CPU, and stores the time, as a writer's sign of
// life. It ends with its standard input.
func runIdle(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("got %d arguments in place of a period and a number of counters", len(args))
	}
	period, err := time.ParseDuration(args[0])
	if err != nil {
		return fmt.Errorf("reading the period: %w", err)
	}
	counters, err := strconv.Atoi(args[1])
	if err != nil {
		return fmt.Errorf("reading the number of counters: %w", err)
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("reading the possible CPUs: %w", err)
	}
	slots := make([]uint64, 2*counters*cpus)
	for i := range slots {
		slots[i] = uint64(i) // pages of their own, not all the zero page
	}

	go func() {
		var sum, at atomic.Uint64
		for now := range time.Tick(period) {
			total := uint64(0)
			for _, n := range slots {
				total += n
			}
			sum.Store(total)
			at.Store(uint64(now.UnixNano()))
		}
	}()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
