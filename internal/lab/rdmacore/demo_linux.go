package rdmacore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab/demo"
)

// Demo runs `flowtally demo --backend rdma` with more arguments in the tree: the programs of the directory bin, over the
// libraries of the release and the uverbs kernel of bin. The demo's instance counts on the device mlx5_0.
func (r *Root) Demo(ctx context.Context, bin string, stdout, stderr io.Writer, args ...string) error {
	env, err := r.preload(filepath.Join(bin, "ibvtest", "uverbs.so"), demo.RDMAInterface)
	if err != nil {
		return err
	}
	for _, name := range []string{"flowtally", "flowtally-plugin"} {
		if err := copyFile(filepath.Join(bin, name), filepath.Join(r.Dir, name)); err != nil {
			return fmt.Errorf("copying %s: %w", name, err)
		}
	}
	return r.mounted(func() error {
		cmd := exec.CommandContext(ctx, "/flowtally", append([]string{"demo", "--backend", "rdma", "--rdma-device", Devices()[0].Name}, args...)...)
		// The demo executes itself again in a copy of the mounts, where its own path is not one of the tree.
		cmd.Dir, cmd.Env = "/", append(env, "FLOWTALLY_PLUGIN=/flowtally-plugin", "TERM="+os.Getenv("TERM"))
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: r.Dir}
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.Stdout, cmd.Stderr = stdout, stderr
		return cmd.Run()
	})
}

// mounted calls do on a thread with a mount namespace of its own, in which the tree has the parts of a machine that
// counting by XDP takes. Programs that do starts from its goroutine are in that namespace. No mount is left in the
// namespace of the caller.
func (r *Root) mounted(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the runtime ends the thread, and with it the namespace
		err := r.mount()
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}

func (r *Root) mount() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unsharing the mount namespace: %w", err)
	}
	const readOnly = unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY
	bind := func(from, to string, flags uintptr) error {
		err := os.MkdirAll(to, 0o755)
		if err == nil {
			err = unix.Mount(from, to, "", unix.MS_BIND, "")
		}
		if err == nil && flags != 0 {
			err = unix.Mount("", to, "", flags, "")
		}
		return err
	}
	in := func(name string) string { return filepath.Join(r.Dir, name) }
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making the mounts private: %w", err)
	}
	// The tree is a mount, so that the demo can make the mounts below it slaves.
	if err := bind(r.Dir, r.Dir, 0); err != nil {
		return fmt.Errorf("mounting %s on itself: %w", r.Dir, err)
	}
	err := errors.Join(
		unix.Mount("proc", in("proc"), "proc", 0, ""),
		bind("/dev/shm", in("dev/shm"), 0),                              // where programs outside find the mirror
		bind("/sys/kernel", in("sys/kernel"), readOnly),                 // BTF
		bind("/sys/devices/system", in("sys/devices/system"), readOnly), // CPUs
		os.MkdirAll(in("sys/fs/bpf"), 0o755),                            // the demo mounts a bpffs there
	)
	if err != nil {
		return fmt.Errorf("mounting the machine's parts in %s: %w", r.Dir, err)
	}
	return nil
}
