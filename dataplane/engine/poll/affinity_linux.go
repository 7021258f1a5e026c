package poll

import (
	"fmt"

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
