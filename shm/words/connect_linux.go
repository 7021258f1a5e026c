package words

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// timeout bounds the time to connect to a socket beside a mirror, and each wait for a message from it.
const timeout = time.Second

// Connect connects to a socket beside a mirror, and bounds every wait on fd. If a step fails, doing says which. Connect calls
// trusts with the user at the other end, and fails if trusts returns an error.
func Connect(path string, trusts func(uid uint32) error) (fd int, doing string, err error) {
	if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, "making a socket", err
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()

	bound := unix.NsecToTimeval(int64(timeout))
	err = errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &bound),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &bound),
	)
	if err != nil {
		return -1, "bounding the wait for a message", err
	}

	err = uninterrupted(func() error {
		return unix.Connect(fd, &unix.SockaddrUnix{Name: path})
	})
	if err != nil {
		return -1, "connecting", err
	}
	peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return -1, "reading the user of the other end", err
	}
	if err := trusts(peer.Uid); err != nil {
		return -1, "connecting", err
	}
	return fd, "", nil
}

// Receive receives one message of at most size bytes. If the message is longer, Receive returns its first size + 1 bytes, so the
// caller should compare the length. fds are the descriptors that came with it. The caller must close them, even if there is an
// error. EMFILE: this process has too many open files to receive the descriptor.
func Receive(fd, size int) (message []byte, fds []int, err error) {
	message = make([]byte, size+1)
	control := make([]byte, unix.CmsgSpace(4*4))
	var n, controls, flags int
	err = uninterrupted(func() (err error) {
		n, controls, flags, _, err = unix.Recvmsg(fd, message, control, unix.MSG_CMSG_CLOEXEC)
		return err
	})
	if err != nil {
		return nil, nil, err
	}

	fds, err = descriptors(control[:controls])
	if err == nil && len(fds) == 0 && flags&unix.MSG_CTRUNC != 0 {
		err = fmt.Errorf("receiving a descriptor: %w", unix.EMFILE)
	}
	return message[:n], fds, err
}

// CloseAll closes all of fds.
func CloseAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// descriptors returns the descriptors in control messages. If a message is malformed, it returns those it found as well.
func descriptors(control []byte) (fds []int, err error) {
	list, err := unix.ParseSocketControlMessage(control)
	for i := range list {
		if some, err := unix.ParseUnixRights(&list[i]); err == nil {
			fds = append(fds, some...)
		}
	}
	return fds, err
}

// uninterrupted repeats a system call while signals interrupt it. Connect bounds each wait, but the kernel starts that time again
// with each repetition, and a profiler may send a signal every few milliseconds. So uninterrupted bounds the sum.
func uninterrupted(call func() error) (err error) {
	began := time.Now()
	for err = unix.EINTR; errors.Is(err, unix.EINTR) && time.Since(began) < timeout; {
		err = call()
	}
	if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
		return fmt.Errorf("the other end did not react within %v: %w", timeout, os.ErrDeadlineExceeded)
	}
	return err
}
