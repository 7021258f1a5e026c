package replay

import (
	"errors"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// unsupported reports whether the kernel lacks the system call or this type of program.
func unsupported(err error) bool {
	return errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.ENOSYS)
}

// refusesLength reports whether BPF_PROG_TEST_RUN failed because of the frame's length. Its errors differ among kernels.
func refusesLength(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.E2BIG)
}
