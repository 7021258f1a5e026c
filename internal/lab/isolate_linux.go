package lab

import (
	"fmt"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// bpffs is where flowtally pins its programs and maps by default.
const bpffs = "/sys/fs/bpf"

// Isolate moves the whole process into a network namespace and a mount namespace
// of its own, with a new bpffs at /sys/fs/bpf, by executing the program again
// in them: a Go process cannot move all of its threads. The namespaces, and the pins
// in that bpffs, end with the last process in them, however it dies.
// Isolate returns nil in the process so made, which finds mark in its environment,
// and does not return in the old one unless it fails. The programs that the process
// starts, from any thread, are in the same namespaces.
func Isolate(mark string) error {
	if os.Getenv(mark) != "" {
		return os.Unsetenv(mark)
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
		runtime.UnlockOSThread() // the namespaces were not left
		return fmt.Errorf("unsharing the network and the mount namespace: %w", err)
	}
	// From here on the thread stays locked: it is in the wrong namespaces, and the
	// runtime ends it with its goroutine in place of reusing it.
	err := quiet()
	if err == nil {
		err = loopbackUp()
	}
	if err == nil {
		err = mountBPFFS()
	}
	if err == nil {
		// The thread that executes becomes the process.
		err = unix.Exec("/proc/self/exe", os.Args, append(os.Environ(), mark+"=1"))
	}
	return fmt.Errorf("executing this program in namespaces of its own: %w", err)
}

// loopbackUp lets the programs of the namespace of this thread talk to one another.
func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("setting lo up: %w", err)
	}
	return nil
}

// mountBPFFS mounts a bpffs in the mount namespace of this thread. Where a container
// forbids that, the bpffs that is there serves.
func mountBPFFS() error {
	// Mounts of the machine still arrive here; ours do not arrive there.
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, "")
	if err == nil {
		err = unix.Mount("bpf", bpffs, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RELATIME, "mode=0700")
	}
	var fs unix.Statfs_t
	if err != nil && (unix.Statfs(bpffs, &fs) != nil || fs.Type != unix.BPF_FS_MAGIC) {
		return fmt.Errorf("mounting a bpffs at %s: %w", bpffs, err)
	}
	return nil
}
