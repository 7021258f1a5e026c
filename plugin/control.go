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

	"github.com/flowtally/flowtally/dataplane"
)

// controlDir holds the control sockets of this host's instances.
const controlDir = "/run/flowtally"

// ControlPath is the control socket of an instance; "" means "default".
func ControlPath(instance string) string {
	if instance == "" {
		instance = "default"
	}
	return filepath.Join(controlDir, instance+".sock")
}

// ServeControl serves svc on the unix socket at path until ctx ends. The
// calls of root and of this process's own user are taken, nobody else's.
// svc is left open.
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
	lis  net.Listener
	lock *os.File

	once sync.Once
}

// ListenControl makes the socket: in a directory made for it (0700) when it is
// missing, and refused when another user owns it or may write in it. The socket
// of a process that died is replaced; that of one that lives is ErrInUse. A nil
// log discards.
func ListenControl(path string, log *slog.Logger) (*Control, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	lis, lock, err := listen(path)
	if err != nil {
		return nil, fmt.Errorf("opening control socket %s: %w", path, err)
	}
	return &Control{path: path, log: log, lis: &credListener{Listener: lis, log: log}, lock: lock}, nil
}

func listen(path string) (_ net.Listener, _ *os.File, err error) {
	if err := peerCredentials(); err != nil {
		return nil, nil, err
	}
	if err := privateDir(filepath.Dir(path)); err != nil {
		return nil, nil, err
	}
	// The lock, which the kernel drops when its holder dies in whatever way,
	// decides between two that start at once.
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(lock.Name())
			lock.Close()
		}
	}()
	if err := removeStale(path); err != nil {
		return nil, nil, err
	}
	lis, err := net.Listen("unix", path)
	if err != nil {
		return nil, nil, err
	}
	// Until here the mode is that of the umask. Whoever connects meanwhile is
	// asked for its credentials like anyone else.
	if err := os.Chmod(path, 0o600); err != nil {
		lis.Close()
		return nil, nil, err
	}
	return lis, lock, nil
}

// privateDir makes dir or checks that nobody else can change what is in it.
func privateDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err == nil {
		return os.Chmod(dir, 0o700) // the umask may have taken bits
	} else if !errors.Is(err, fs.ErrExist) {
		if errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("%w: %w: run as root, or name a socket in a directory of yours", dataplane.ErrPermission, err)
		}
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%w: %s is not a directory (%s)", dataplane.ErrPermission, dir, info.Mode().Type())
	}
	if uid, known := ownerOf(info); known && uid != os.Geteuid() {
		return fmt.Errorf("%w: directory %s belongs to user %d, not to %d: chown it, or name a socket elsewhere",
			dataplane.ErrPermission, dir, uid, os.Geteuid())
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%w: directory %s (mode %04o) can be written by others: chmod go-w %s",
			dataplane.ErrPermission, dir, info.Mode().Perm(), dir)
	}
	return nil
}

// removeStale removes a socket that nobody listens on. The lock is held: only
// something that is not of ours could be listening.
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
		return fmt.Errorf("asking whether somebody listens: %w", err)
	}
	return os.Remove(path)
}

// Serve answers calls with svc until ctx ends or Close is called, and closes
// the socket. Calls under way are cut off. svc is left open.
func (c *Control) Serve(ctx context.Context, svc dataplane.Service) error {
	defer c.Close()
	s := grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage), grpc.ConnectionTimeout(10*time.Second))
	Register(s, svc)
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	defer s.Stop()
	err := s.Serve(c.lis)
	if err == nil || ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return fmt.Errorf("serving control socket %s: %w", c.path, err)
}

// Close stops listening and removes the socket. Idempotent; Serve does it too.
func (c *Control) Close() error {
	var err error
	c.once.Do(func() {
		if err = c.lis.Close(); errors.Is(err, net.ErrClosed) {
			err = nil
		}
		_ = os.Remove(c.lock.Name()) // while it is held
		c.lock.Close()
	})
	return err
}

// credListener lets in connections of root and of this process's own user. It is
// the second fence: the socket's mode keeps everyone else from connecting.
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
		uid, err := peerUID(conn)
		if err == nil && (uid == 0 || int(uid) == os.Geteuid()) {
			return conn, nil
		}
		l.log.Warn("refused a connection to the control socket", "uid", uid, "error", err)
		conn.Close()
	}
}
