package words

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// timeout bounds the connecting to a socket beside a mirror, and each wait for its message.
const timeout = time.Second

// Connect connects to a socket beside a mirror. Every wait on fd is bounded. With an error doing names the step that failed.
// trusts returns an error if the user at the other end is not trusted.
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

// Receive receives one message, of size bytes or of one byte more, which says that it is too long. The caller closes fds, the
// descriptors that came with the message, also beside an error. EMFILE: this process has no room for the descriptor that
// came.
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

// CloseAll closes descriptors.
func CloseAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// descriptors returns the descriptors of control messages.
func descriptors(control []byte) (fds []int, err error) {
	list, err := unix.ParseSocketControlMessage(control)
	for i := range list {
		if some, err := unix.ParseUnixRights(&list[i]); err == nil {
			fds = append(fds, some...)
		}
	}
	return fds, err
}

// uninterrupted repeats a system call as long as signals interrupt it, on a connection whose waits Connect has bounded. The
// kernel begins a wait anew with each repetition, so uninterrupted bounds them all together.
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
