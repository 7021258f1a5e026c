package live

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane"
)

const (
	// pauseAfter is the pause after each client. With it, clients that connect all the time cost the writer 1 % of a core.
	pauseAfter = time.Millisecond
	// retryAfter is the pause after a failed accept, for example if the process has too many open files.
	retryAfter = 100 * time.Millisecond
	// waiting is how many clients may wait to be accepted. Others wait in connect(2).
	waiting = 64
	// longestPath is the highest number of bytes in the path of a unix socket, without its NUL (struct sockaddr_un).
	longestPath = 107
)

// Socket sends one descriptor to each process that connects, and reads nothing from it. It never waits for a client: the message
// fits the empty buffer of a new connection, and Socket then shuts the connection down. So a client that does not receive, or that
// writes, delays no other client. Callers must not call its methods concurrently.
type Socket struct {
	opts    Options // with a duplicate of the descriptor
	message []byte
	current *listener // nil: closed
	unread  Unread
}

// listener is the socket that has the name now, with its goroutine.
type listener struct {
	f     *os.File
	id    fileID
	ended chan struct{}
}

// fileID identifies a socket's file.
type fileID struct{ dev, ino uint64 }

func idOf(st *unix.Stat_t) fileID { return fileID{dev: uint64(st.Dev), ino: st.Ino} }

// Listen makes the socket o.Path and serves it until Close. It replaces a socket left by a dead process.
func Listen(o Options) (*Socket, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	fail := func(err error) (*Socket, error) {
		return nil, fmt.Errorf("%s: handing out descriptors: %w", o.Path, err)
	}

	s := &Socket{opts: o}
	var err error
	if o.Serve == nil {
		if s.opts.Map.FD, err = unix.FcntlInt(uintptr(o.Map.FD), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			return fail(fmt.Errorf("duplicating descriptor %d: %w", o.Map.FD, err))
		}
		s.message = o.Map.Message()
	}
	if s.current, err = s.listen(); err != nil {
		_ = s.closeMap()
		return fail(err)
	}
	return s, nil
}

// listen makes a socket under a temporary name, sets its mode and its group, and then renames it to its own name. So a client
// always finds a complete socket under the name, even while one replaces another.
func (s *Socket) listen() (_ *listener, err error) {
	tmp := filepath.Join(filepath.Dir(s.opts.Path), "."+filepath.Base(s.opts.Path)+".tmp-"+strings.ToLower(rand.Text()[:8]))
	if len(tmp) > longestPath {
		return nil, fmt.Errorf("its path is longer than the %d bytes that a socket's may have: choose a shorter mirror.path: %w",
			longestPath-(len(tmp)-len(s.opts.Path)), dataplane.ErrInvalid)
	}

	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), s.opts.Path)
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(tmp)
		}
	}()

	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: tmp}); err != nil {
		return nil, fmt.Errorf("binding: %w", err)
	}
	if s.opts.Group > 0 {
		if err := os.Lchown(tmp, -1, s.opts.Group); err != nil {
			return nil, fmt.Errorf("giving it to group %d: %w: run the writer as a member (SupplementaryGroups= of a systemd unit) or with CAP_CHOWN, or name another group: %w",
				s.opts.Group, err, dataplane.ErrPermission)
		}
	}
	// Set the mode before listen(2): until then no process can connect.
	if err := os.Chmod(tmp, s.opts.Mode.Perm()); err != nil {
		return nil, fmt.Errorf("setting its mode: %w", err)
	}

	var st unix.Stat_t
	if err := unix.Lstat(tmp, &st); err != nil {
		return nil, err
	}
	if err := unix.Listen(fd, waiting); err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	if err := refuseForeign(s.opts.Path); err != nil {
		return nil, err
	}
	if err := os.Rename(tmp, s.opts.Path); err != nil {
		return nil, fmt.Errorf("naming it: %w", err)
	}

	l := &listener{f: f, id: idOf(&st), ended: make(chan struct{})}
	go s.run(l)
	return l, nil
}

// refuseForeign returns an error if path is a file other than a socket of this user. Nothing changes between this check and the
// rename, because only this user may write to the directory.
func refuseForeign(path string) error {
	var st unix.Stat_t
	switch err := unix.Lstat(path, &st); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT != unix.S_IFSOCK || st.Uid != uint32(os.Geteuid()):
		return fmt.Errorf("a file of user %d that is not a socket of this user has its name: move it away, or choose another mirror.path: %w",
			st.Uid, dataplane.ErrPermission)
	}
	return nil
}

// run serves clients until l is closed.
func (s *Socket) run(l *listener) {
	defer close(l.ended)
	raw, err := l.f.SyscallConn()
	if err != nil {
		return
	}

	rights := unix.UnixRights(s.opts.Map.FD)
	logged := false
	for {
		var conn int
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			conn, _, failed = unix.Accept4(int(fd), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			return !errors.Is(failed, unix.EAGAIN)
		})
		if err != nil { // closed
			return
		}

		pause := pauseAfter
		switch {
		case failed != nil:
			pause = retryAfter
		case s.opts.Serve != nil:
			s.opts.Serve(conn)
		default:
			failed = s.hand(conn, rights)
		}
		if failed != nil && !logged {
			logged = true
			s.opts.Logger.Warn("a client of a socket beside the mirror was not served", "path", s.opts.Path, "err", failed)
		}
		time.Sleep(pause)
	}
}

// errUnread: this user, or all users together, have too many messages that their clients have not received.
var errUnread = errors.New("clients have not received the descriptors that they asked for")

// hand sends the descriptor to a client. It owns the connection from then on.
func (s *Socket) hand(conn int, rights []byte) error {
	peer, err := unix.GetsockoptUcred(conn, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err == nil && !s.unread.Room(peer.Uid) {
		err = fmt.Errorf("user %d: %w", peer.Uid, errUnread)
	}
	if err == nil {
		err = unix.Sendmsg(conn, s.message, rights, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	}

	switch {
	case err == nil:
		s.unread.Keep(peer.Uid, conn)
		return nil
	case errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET): // the client has closed the connection
		err = nil
	}
	_ = unix.Close(conn)
	return err
}

// close closes the socket, and waits for the goroutine.
func (l *listener) close() {
	_ = l.f.Close()
	<-l.ended
}

// Keep makes the socket anew if another process has removed or replaced its name. Call it about once a second. After an error the
// next call tries again.
func (s *Socket) Keep() error {
	if s == nil || s.current == nil {
		return nil
	}
	var st unix.Stat_t
	err := unix.Lstat(s.opts.Path, &st)
	if err == nil && idOf(&st) == s.current.id {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil // we cannot tell, so try again next time
	}

	next, err := s.listen()
	if err != nil {
		s.opts.Logger.Debug("a socket beside the mirror has lost its name", "path", s.opts.Path, "err", err)
		return err
	}
	s.opts.Logger.Warn("a socket beside the mirror was removed or replaced: made anew", "path", s.opts.Path)
	s.current.close()
	s.current = next
	return nil
}

// Close closes the socket. Its name stays until the next writer of the mirror replaces it, like those of the other files.
// Idempotent.
func (s *Socket) Close() error {
	if s == nil || s.current == nil {
		return nil
	}
	s.current.close()
	s.current = nil
	s.unread.Close()
	return s.closeMap()
}

// closeMap closes the duplicate of the map's descriptor, if there is one.
func (s *Socket) closeMap() error {
	if s.opts.Serve != nil {
		return nil
	}
	return unix.Close(s.opts.Map.FD)
}
