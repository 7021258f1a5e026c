package trust

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// openFlags open a file without a wait for a FIFO's other end, and without permission to read.
const openFlags = unix.O_PATH

// thisProgram is the path of the file that the kernel executes. The program's own path may name another file by now.
func thisProgram() string { return "/proc/self/exe" }

// hasAccessList reports whether a POSIX access control list decides beside the mode of the file. It is also true if that
// cannot be learned.
func hasAccessList(f *os.File) bool {
	// An O_PATH descriptor has no fgetxattr.
	_, err := unix.Getxattr(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), "system.posix_acl_access", nil)
	return !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.ENOTSUP)
}

// kernelFilesystems hold no file that a user has written. The kernel makes a file's text when somebody reads it, and decides
// then who may: the mode, as of /proc/PID/maps, does not say it all.
var kernelFilesystems = []uint32{
	unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC, unix.CGROUP_SUPER_MAGIC,
	unix.CGROUP2_SUPER_MAGIC, unix.BPF_FS_MAGIC, unix.PSTOREFS_MAGIC, unix.EFIVARFS_MAGIC, unix.SELINUX_MAGIC, unix.SMACK_MAGIC,
	unix.BINFMTFS_MAGIC, unix.NSFS_MAGIC, unix.DEVPTS_SUPER_MAGIC, unix.RDTGROUP_SUPER_MAGIC,
	0x62656570, // configfs
	0x19800202, // mqueue
}

// OfKernel reports whether the kernel makes the text of the file, as below /proc and /sys, wherever these are mounted.
func OfKernel(f *os.File) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return false, &os.PathError{Op: "statfs", Path: f.Name(), Err: err}
	}
	return slices.Contains(kernelFilesystems, uint32(st.Type)), nil
}

// OfUser reports whether a user's program answers for the filesystem, its owners and modes included: FUSE.
func OfUser(f *os.File) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &st) != nil || uint32(st.Type) == unix.FUSE_SUPER_MAGIC
}

// Reopen opens, for reading, the file of a descriptor that Open returned.
func Reopen(f *os.File) (*os.File, error) {
	// The descriptor names the file, whatever the path names by now.
	again, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) { // no /proc here
		return reopenByPath(f)
	}
	return again, err
}
