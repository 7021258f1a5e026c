package xdp

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// explain adds the remedy to a refusal.
func explain(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w: %w: it takes CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN (or root)", ErrPermission, err)
	}
	return err
}
