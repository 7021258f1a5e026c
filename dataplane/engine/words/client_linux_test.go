package words_test

import (
	"encoding/binary"
	"math"
	"testing"

	"golang.org/x/sys/unix"

	shmwords "github.com/flowtally/flowtally/shm/words"
)

// client is a connection to the socket as a hostile program has it: it writes the messages by itself.
type client struct {
	t  *testing.T
	fd int
}

func connect(t *testing.T, path string) *client {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: shmwords.Path(path)}); err != nil {
		t.Fatal(err)
	}
	return &client{t, fd}
}

// send sends bytes and returns the reply's errno and its descriptor, or -1.
func (c *client) send(message []byte) (errno unix.Errno, number uint64, fd int) {
	c.t.Helper()
	if err := unix.Send(c.fd, message, unix.MSG_NOSIGNAL); err != nil {
		c.t.Fatal(err)
	}
	b, control := make([]byte, 256), make([]byte, unix.CmsgSpace(16))
	n, controls, _, _, err := unix.Recvmsg(c.fd, b, control, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		c.t.Fatal(err)
	}
	if n == 0 {
		return unix.ECONNRESET, 0, -1
	}
	fd = -1
	if list, err := unix.ParseSocketControlMessage(control[:controls]); err == nil && len(list) == 1 {
		if fds, err := unix.ParseUnixRights(&list[0]); err == nil && len(fds) == 1 {
			fd = fds[0]
			c.t.Cleanup(func() { _ = unix.Close(fd) })
		}
	}
	return unix.Errno(binary.NativeEndian.Uint32(b[16:])), binary.NativeEndian.Uint64(b[24:]), fd
}

// abandon takes words and ends the connection, and returns the descriptor that a device would go on writing to.
func abandon(t *testing.T, path string) (unix.Errno, uint64, int) {
	t.Helper()
	c := connect(t, path)
	errno, number, fd := c.send(shmwords.Request{Kind: shmwords.TakeWords, Name: "app", Limit: math.MaxUint64}.Message())
	if err := unix.Shutdown(c.fd, unix.SHUT_RDWR); err != nil {
		t.Fatal(err)
	}
	return errno, number, fd
}

func word(v uint64) (b [8]byte) {
	binary.NativeEndian.PutUint64(b[:], v)
	return b
}
