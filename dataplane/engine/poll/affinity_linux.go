package poll

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// pinThread binds the calling thread to cpu.
func pinThread(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("binding the thread to CPU %d: %w", cpu, err)
	}
	return nil
}

// CheckCPU returns an error that names the CPUs of this process if a busy poller cannot be bound to cpu.
func CheckCPU(cpu int) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: no other goroutine may inherit the changed affinity, so the thread ends here
		err := pinThread(cpu)
		if err != nil {
			err = fmt.Errorf("%w: name one of the CPUs %s", err, usableCPUs())
		}
		result <- err
	}()
	return <-result
}

// usableCPUs lists the CPUs that the calling thread may be bound to. It changes the affinity of the thread.
func usableCPUs() string {
	var wanted, all unix.CPUSet
	for i := range wanted {
		wanted[i] = ^wanted[i]
	}
	if unix.SchedSetaffinity(0, &wanted) != nil || unix.SchedGetaffinity(0, &all) != nil {
		return "of this host"
	}

	var names []string
	for cpu := range len(all) * 64 {
		if !all.IsSet(cpu) {
			continue
		}
		last := cpu
		for all.IsSet(last + 1) {
			last++
		}

		switch {
		case cpu > 0 && all.IsSet(cpu-1): // listed with the range before
		case last > cpu:
			names = append(names, fmt.Sprintf("%d-%d", cpu, last))
		default:
			names = append(names, strconv.Itoa(cpu))
		}
	}
	return strings.Join(names, ",")
}
