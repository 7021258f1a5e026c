package trust

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// openFlags opens any file, even without read permission, and does not block on a FIFO.
const openFlags = unix.O_PATH

// thisProgram returns a path to the file being executed. os.Executable might lead to another file by now.
func thisProgram() string { return "/proc/self/exe" }

// hasAccessList reports whether the file has a POSIX access control list in addition to its mode. In doubt it returns true.
func hasAccessList(f *os.File) bool {
	// fgetxattr does not work on O_PATH descriptors.
	_, err := unix.Getxattr(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), "system.posix_acl_access", nil)
	return !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.ENOTSUP)
}

// kernelFilesystems lists the file systems whose contents come from the kernel. It generates a file during the read and
// decides then who may read it. So the mode is not the whole truth, for example of /proc/PID/maps.
var kernelFilesystems = []uint32{
	unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC, unix.CGROUP_SUPER_MAGIC,
	unix.CGROUP2_SUPER_MAGIC, unix.BPF_FS_MAGIC, unix.PSTOREFS_MAGIC, unix.EFIVARFS_MAGIC, unix.SELINUX_MAGIC, unix.SMACK_MAGIC,
	unix.BINFMTFS_MAGIC, unix.NSFS_MAGIC, unix.DEVPTS_SUPER_MAGIC, unix.RDTGROUP_SUPER_MAGIC,
	0x62656570, // configfs
	0x19800202, // mqueue
}

// OfKernel reports whether the kernel generates the contents of the file, as in /proc and /sys, wherever they are mounted.
func OfKernel(f *os.File) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return false, &os.PathError{Op: "statfs", Path: f.Name(), Err: err}
	}
	return slices.Contains(kernelFilesystems, uint32(st.Type)), nil
}

// OfUser reports whether the file is on FUSE, where a program of a user can make up owners and modes.
func OfUser(f *os.File) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &st) != nil || uint32(st.Type) == unix.FUSE_SUPER_MAGIC
}

// Reopen opens the file of a descriptor from Open for reading.
func Reopen(f *os.File) (*os.File, error) {
	// Not by its path, which may lead to another file by now.
	again, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) { // /proc is not mounted
		return reopenByPath(f)
	}
	return again, err
}
