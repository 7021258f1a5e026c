package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/flowtally/flowtally/dataplane"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

// ServeControl serves svc on the unix socket at path until ctx ends. The calls of root and of this process's own user
// are accepted. svc is not closed.
func ServeControl(ctx context.Context, path string, svc dataplane.Service) error {
	c, err := ListenControl(path, nil)
	if err != nil {
		return err
	}
	return c.Serve(ctx, svc)
}

// Control is a control socket that is listening. Connections wait until Serve.
type Control struct {
	path string
	log  *slog.Logger

	mu      sync.Mutex
	at      listening
	madeDir bool // the directory was made for the socket, and goes with it when nothing else is in it
	closed  bool
}

// listening is a socket with its name, and the lock that allows it.
type listening struct {
	*credListener
	socket fs.FileInfo // the file that the path named when the socket was made
	lock   *os.File
}

// socketPeriod is the period at which Serve checks that the socket still has its name.
const socketPeriod = time.Second

// ListenControl makes the socket. It makes the socket's directory (0700) if it is missing, and refuses a directory
// that another user owns or can write to. It replaces the socket of a dead process; the socket of a live process is
// ErrInUse. A nil log discards.
func ListenControl(path string, log *slog.Logger) (*Control, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c := &Control{path: path, log: log}
	var err error
	if c.at, err = c.listen(nil); err != nil {
		if c.madeDir {
			_ = os.Remove(filepath.Dir(path))
		}
		return nil, fmt.Errorf("opening control socket %s: %w", path, err)
	}
	return c, nil
}

// lock makes the socket's directory and takes the lock in it. An instance that ends removes the
// directory that it made, perhaps between the two steps: they are done again then.
func (c *Control) lock() (*os.File, error) {
	for {
		made, err := privateDir(filepath.Dir(c.path))
		if err != nil {
			return nil, err
		}
		c.madeDir = c.madeDir || made
		lock, err := lockFile(c.path + ".lock")
		if !errors.Is(err, fs.ErrNotExist) {
			return lock, err
		}
	}
}

// listen makes the socket, under the lock that is held or, where that lost its name, under another one.
func (c *Control) listen(held *os.File) (at listening, err error) {
	if err := peerCredentials(); err != nil {
		return at, err
	}
	// The lock, which the kernel drops when its holder dies in whatever way,
	// decides between two that start at once.
	lock := held
	if held != nil && named(held.Name(), held.Stat) {
		if _, err := privateDir(filepath.Dir(c.path)); err != nil {
			return at, err
		}
	} else {
		if lock, err = c.lock(); err != nil {
			return at, err
		}
		defer func() {
			if err != nil {
				_ = os.Remove(lock.Name())
				lock.Close()
			}
		}()
	}
	if err := removeStale(c.path); err != nil {
		return at, err
	}
	lis, err := net.ListenUnix("unix", &net.UnixAddr{Name: c.path, Net: "unix"})
	if err != nil {
		return at, err
	}
	lis.SetUnlinkOnClose(false) // the path may name another socket by then
	// Until here the umask sets the mode. Accept checks the credentials of a client that connects meanwhile, as of
	// every client.
	err = os.Chmod(c.path, 0o600)
	socket, statErr := os.Lstat(c.path)
	if err = errors.Join(err, statErr); err != nil {
		lis.Close()
		return at, err
	}
	return listening{&credListener{lis, c.log}, socket, lock}, nil
}

// named says whether the path names the file that stat describes.
func named(path string, stat func() (fs.FileInfo, error)) bool {
	there, err := os.Lstat(path)
	if err != nil {
		return false
	}
	info, err := stat()
	return err == nil && os.SameFile(there, info)
}

func (l listening) named() bool {
	return named(l.Addr().String(), func() (fs.FileInfo, error) { return l.socket, nil })
}

// again makes the socket again if it has lost its name. Accepted connections stay.
func (c *Control) again() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.at.named() {
		return nil
	}
	now, err := c.listen(c.at.lock)
	if err != nil {
		return fmt.Errorf("opening control socket %s again: %w", c.path, err)
	}
	old := c.at
	c.at = now
	if old.lock != now.lock {
		old.lock.Close()
	}
	c.log.Warn("the control socket was removed: made again", "socket", c.path)
	return old.Close()
}

// keep makes the socket again when it has lost its name, until ctx ends. It logs each new error once.
func (c *Control) keep(ctx context.Context) {
	tick := time.NewTicker(socketPeriod)
	defer tick.Stop()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := c.again()
		switch {
		case err == nil:
			said = ""
		case err.Error() != said:
			said = err.Error()
			c.log.Error("the control socket is gone", "err", err)
		}
	}
}

// removeStale removes a socket on which no process listens. The caller holds the lock, so that only a process of
// another program could be listening.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%w: there is a file that is no socket: move it away, or name another path", dataplane.ErrInvalid)
	}
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		conn.Close()
		return fmt.Errorf("%w: a process that is not of flowtally listens there: name another path", dataplane.ErrInUse)
	} else if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("checking for a listener: %w", err)
	}
	return os.Remove(path)
}

// Serve passes calls to svc until ctx ends or Close is called. Then it cuts off calls under way and closes the
// socket, and not svc. It makes a socket that is removed meanwhile again.
func (c *Control) Serve(ctx context.Context, svc dataplane.Service) error {
	defer c.Close()
	s := grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage), grpc.ConnectionTimeout(10*time.Second))
	pluginv1.RegisterDataplaneServer(s, &server{svc: svc, log: c.log})
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	defer s.Stop()
	served, end := context.WithCancel(ctx)
	var kept sync.WaitGroup
	kept.Go(func() { c.keep(served) })
	defer kept.Wait()
	defer end()
	for {
		at, closed := c.current()
		err := s.Serve(at)
		if now, _ := c.current(); now.credListener != at.credListener && !closed && ctx.Err() == nil {
			continue // the socket was made again
		}
		if err == nil || ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return nil
		}
		return fmt.Errorf("serving control socket %s: %w", c.path, err)
	}
}

func (c *Control) current() (listening, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at, c.closed
}

// Close stops listening and removes the socket. Idempotent; Serve does it too.
func (c *Control) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	err := c.at.Close()
	if errors.Is(err, net.ErrClosed) { // Serve closes it too
		err = nil
	}
	if c.at.named() {
		err = errors.Join(err, os.Remove(c.path))
	}
	if named(c.at.lock.Name(), c.at.lock.Stat) {
		_ = os.Remove(c.at.lock.Name()) // while it is held
	}
	c.at.lock.Close()
	if c.madeDir {
		_ = os.Remove(filepath.Dir(c.path))
	}
	return err
}

// credListener accepts connections of root and of this process's own user. The socket's mode already keeps other
// users from connecting.
type credListener struct {
	net.Listener
	log *slog.Logger
}

func (l *credListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer, err := peerOf(conn)
		if err == nil && (peer.uid == 0 || int(peer.uid) == os.Geteuid()) {
			return callerConn{conn, peer}, nil
		}
		l.log.Warn("refused a connection to the control socket", "uid", peer.uid, "error", err)
		conn.Close()
	}
}

// caller is the process at the other end of a connection, as the kernel recorded it at connect(2). It stands in place of
// the peer's address, which a unix socket does not have.
type caller struct {
	net.Addr
	uid uint32
	pid int32
}

type callerConn struct {
	net.Conn
	peer caller
}

func (c callerConn) RemoteAddr() net.Addr { return c.peer }

// asked logs who asks for a change of the instance over the control socket.
func (s *server) asked(ctx context.Context, change string) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return
	}
	if c, is := p.Addr.(caller); is {
		s.log.Info("asked over the control socket", "for", change, "user", c.uid, "process", c.pid)
	}
}
