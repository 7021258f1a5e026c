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

// Demo runs `flowtally demo --backend rdma` with more arguments in the tree. The demo's instance counts on the device mlx5_0.
func (r *Root) Demo(ctx context.Context, bin string, stdout, stderr io.Writer, args ...string) error {
	args = append([]string{"demo", "--backend", "rdma", "--rdma-device", Devices()[0].Name}, args...)
	var env []string
	if r.server != "" { // the instance sets the environment of its own kernel alone
		env = []string{"FLOWTALLY_IBVTEST_DEVICES=" + Devices()[0].Name + "=" + demo.RDMAInterface}
	}
	return r.Flowtally(ctx, bin, env, []string{demo.RDMAInterface}, stdout, stderr, args...)
}

// Flowtally runs the command flowtally in the tree, in the calling thread's network namespace: the programs of the directory
// bin, over the libraries of the release and the uverbs kernel of bin, whose devices have the netdevs.
func (r *Root) Flowtally(ctx context.Context, bin string, env, netdevs []string, stdout, stderr io.Writer, args ...string) error {
	front, command := "uverbs.so", append([]string{"/flowtally"}, args...)
	if r.server != "" {
		front, command = filepath.Base(r.server), append([]string{r.server}, command...)
	}
	kernel, err := r.preload(filepath.Join(bin, "ibvtest", front), netdevs...)
	if err != nil {
		return err
	}
	for _, name := range []string{"flowtally", "flowtally-plugin"} {
		if err := copyFile(filepath.Join(bin, name), filepath.Join(r.Dir, name)); err != nil {
			return fmt.Errorf("copying %s: %w", name, err)
		}
	}
	ns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("opening the network namespace: %w", err)
	}
	defer ns.Close()
	return r.mounted(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering the network namespace: %w", err)
		}
		cmd := exec.CommandContext(ctx, command[0], command[1:]...)
		// The demo executes itself again in a copy of the mounts, where its own path is not one of the tree.
		cmd.Dir, cmd.Env = "/", append(append(kernel, "FLOWTALLY_PLUGIN=/flowtally-plugin", "TERM="+os.Getenv("TERM")), env...)
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
		os.MkdirAll(in("sys/fs/bpf"), 0o755),
	)
	if err == nil {
		err = unix.Mount("bpf", in("sys/fs/bpf"), "bpf", 0, "mode=0700")
	}
	if err != nil {
		return fmt.Errorf("mounting the machine's parts in %s: %w", r.Dir, err)
	}
	return nil
}
