//go:build unix

package engine

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane"
)

// enoughDescriptors refuses a start that would run out of file descriptors: the kernel's answers to it name other
// causes, such as features that this kernel has.
func enoughDescriptors(cfg dataplane.Config) error {
	const own, ofInterface = 64, 4 // measured: 37 to count on one interface
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return nil // without the limit the start shows it
	}
	needed := uint64(own + ofInterface*len(cfg.Interfaces))
	if uint64(limit.Cur) >= needed {
		return nil
	}
	return fmt.Errorf("opening file descriptors: this process may open %d (RLIMIT_NOFILE), and takes up to %d: raise the limit: ulimit -n 8192, or LimitNOFILE= in the systemd unit",
		uint64(limit.Cur), needed)
}
