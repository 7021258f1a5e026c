package replay

import (
	"errors"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// unsupported reports an error of a kernel without the system call or the kind of program.
func unsupported(err error) bool {
	return errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.ENOSYS)
}

// refusesLength reports an error of BPF_PROG_TEST_RUN that is due to the length of the frame.
func refusesLength(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.E2BIG)
}
