package cli

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/trust"
)

// isolate moves the process into a network namespace of its own.
func isolate() error {
	err := lab.Isolate("FLOWTALLY_DEMO_ISOLATED")
	if errors.Is(err, unix.EPERM) {
		return withHint(fmt.Errorf("demo: %w: %w", dataplane.ErrPermission, err), "SUDO")
	}
	return err
}

// withinReach bind-mounts dir at a place that the plugin can reach. The plugin runs as root without CAP_DAC_OVERRIDE, and
// a build tree is often below a home directory closed to other users. Only the mount namespace of the demo sees the mount.
func withinReach(dir string) (at string, leave func(), err error) {
	f, why, err := trust.Open(dir, func(uid uint32) bool { return uid == 0 || trust.OwnsProgram(uid) })
	if why != "" {
		err = fmt.Errorf("%w: %s", dataplane.ErrPermission, why)
	}
	if err != nil {
		return "", nil, fmt.Errorf("demo: opening the uverbs kernel in software: %w", err)
	}
	defer f.Close()

	if at, err = os.MkdirTemp("", "flowtally-demo-"); err != nil {
		return "", nil, fmt.Errorf("demo: making room for the uverbs kernel in software: %w", err)
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), at, "", unix.MS_BIND, ""); err != nil {
		os.Remove(at)
		return "", nil, fmt.Errorf("demo: mounting the uverbs kernel in software: %w", err)
	}
	return at, func() {
		_ = unix.Unmount(at, unix.MNT_DETACH)
		_ = os.Remove(at)
	}, nil
}
