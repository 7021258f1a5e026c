package words

import (
	"cmp"
	"errors"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane/engine/live"
	shmwords "github.com/flowtally/flowtally/shm/words"
)

// client is a connection to the socket NAME.words.
type client struct {
	f      *os.File
	once   sync.Once
	uid    uint32
	unread *live.Unread

	// Guarded by Set.mu.
	turn   uint64 // its number, in the order of the connections
	silent bool   // it has sent no request yet
	handed bool   // we have sent it a descriptor
}

// end ends the connection. If we have sent a descriptor on it, Unread counts that until the client receives it.
func (c *client) end() {
	c.once.Do(func() {
		if c.handed {
			if conn, err := c.descriptor(); err == nil {
				c.unread.Keep(c.uid, conn)
			}
		}
		_ = c.f.Close()
	})
}

// receive reads one request.
func (c *client) receive() (shmwords.Request, error) {
	b := make([]byte, 256)
	n, err := c.f.Read(b)
	if err != nil {
		return shmwords.Request{}, err
	}
	return shmwords.ParseRequest(b[:n])
}

// reply sends a reply, with a descriptor of f unless f is nil.
func (c *client) reply(r shmwords.Reply, f *os.File) error {
	raw, err := c.f.SyscallConn()
	if err != nil {
		return err
	}
	if f == nil {
		return send(raw, r.Message(), nil)
	}

	file, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = file.Control(func(fd uintptr) { failed = send(raw, r.Message(), unix.UnixRights(int(fd))) })
	return cmp.Or(err, failed)
}

// send sends one message. It waits until the connection accepts it.
func send(conn syscall.RawConn, message, rights []byte) error {
	var failed error
	err := conn.Write(func(fd uintptr) bool {
		failed = unix.Sendmsg(int(fd), message, rights, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		return !errors.Is(failed, unix.EAGAIN)
	})
	return errors.Join(err, failed)
}

// descriptor returns a duplicate of the connection's descriptor.
func (c *client) descriptor() (fd int, err error) {
	raw, err := c.f.SyscallConn()
	if err != nil {
		return -1, err
	}
	var failed error
	err = raw.Control(func(of uintptr) { fd, failed = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(err, failed)
}
