package lab

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Every raw system call of the package is made here. The kernel keeps no
// pointer of these calls after they return; converting to uintptr in the call
// expression itself keeps the object alive and in place until then.

// ioctlEthtool runs the ethtool command in word[0], whose argument and result
// is word[1], on the interface called name.
func ioctlEthtool(fd int, name string, word *[2]uint32) error {
	// struct ifreq: 16 bytes of name, then a union of 24 that holds a pointer here.
	var req struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer // to heap memory that the caller holds
		_    [16]byte
	}
	copy(req.name[:unix.IFNAMSIZ-1], name)
	req.data = unsafe.Pointer(word)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	if errno != 0 {
		return errno
	}
	return nil
}
