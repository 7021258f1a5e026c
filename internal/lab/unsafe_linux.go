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

// mmsghdr is struct mmsghdr of sendmmsg(2).
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32 // set by the kernel: bytes sent
	_   [4]byte
}

// messages lays out one message per slot. They point at the frames, which the
// slots keep alive for as long as the messages are used.
func messages(slots []slot) []mmsghdr {
	msgs, iovs := make([]mmsghdr, len(slots)), make([]unix.Iovec, len(slots))
	for i, s := range slots {
		iovs[i].Base = unsafe.SliceData(s.frame)
		iovs[i].SetLen(len(s.frame))
		msgs[i].hdr.Iov = &iovs[i]
		msgs[i].hdr.SetIovlen(1)
	}
	return msgs
}

// sendmmsg offers msgs, at least one, to the socket and returns how many the
// kernel took. The error is 0, or the error of the first message when the kernel took no message.
func sendmmsg(fd int, msgs []mmsghdr) (int, unix.Errno) {
	n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd),
		uintptr(unsafe.Pointer(unsafe.SliceData(msgs))), uintptr(len(msgs)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// registerUmem gives an AF_XDP socket its memory, which outlives the socket.
func registerUmem(fd int, mem []byte, frame uint32) error {
	reg := unix.XDPUmemReg{Addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))), Len: uint64(len(mem)), Size: frame}
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_XDP, unix.XDP_UMEM_REG,
		uintptr(unsafe.Pointer(&reg)), unsafe.Sizeof(reg), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// xdpStatistics reads the statistics of an AF_XDP socket.
func xdpStatistics(fd int) (s unix.XDPStatistics, err error) {
	size := uint32(unsafe.Sizeof(s))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_XDP, unix.XDP_STATISTICS,
		uintptr(unsafe.Pointer(&s)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return s, errno
	}
	return s, nil
}
