package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
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
	socket  socket // in use; another one after the file was removed
	madeDir bool   // the directory was made for the socket, and goes with it when nothing else is in it
	closed  bool
}

// ListenControl makes the socket. It makes the socket's directory (0700) if it is missing, and refuses a directory
// that another user owns or can write to. It replaces the socket of a dead process; the socket of a live process is
// ErrInUse. A nil log discards.
func ListenControl(path string, log *slog.Logger) (*Control, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c := &Control{path: path, log: log}
	var err error
	if c.socket, err = c.listen(nil); err != nil {
		if c.madeDir {
			_ = os.Remove(filepath.Dir(path))
		}
		return nil, fmt.Errorf("opening control socket %s: %w", path, err)
	}
	return c, nil
}

// Serve passes calls to svc until ctx ends or Close is called. Then it cuts off calls under way and closes the
// socket, and not svc. It makes a socket that is removed meanwhile again.
func (c *Control) Serve(ctx context.Context, svc dataplane.Service) error {
	defer c.Close()

	s := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxSendMsgSize(maxMessage),
		grpc.ConnectionTimeout(10*time.Second),
	)
	pluginv1.RegisterDataplaneServer(s, &server{svc: svc, log: c.log})
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	defer s.Stop()

	watchCtx, endWatch := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { c.keepName(watchCtx) })
	defer watch.Wait()
	defer endWatch()

	for {
		served, closed := c.current()
		err := s.Serve(served)
		if now, _ := c.current(); now.credListener != served.credListener && !closed && ctx.Err() == nil {
			continue // the socket was made again
		}
		if err == nil || ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return nil
		}
		return fmt.Errorf("serving control socket %s: %w", c.path, err)
	}
}

// current returns the socket in use.
func (c *Control) current() (s socket, closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.socket, c.closed
}

// Close stops listening and removes the socket. Idempotent; Serve does it too.
func (c *Control) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true

	err := c.socket.Close()
	if errors.Is(err, net.ErrClosed) { // Serve closes it too
		err = nil
	}
	if c.socket.hasName() {
		err = errors.Join(err, os.Remove(c.path))
	}

	lock := c.socket.lock
	if isNameOf(lock.Name(), lock.Stat) {
		_ = os.Remove(lock.Name()) // while it is held
	}
	lock.Close()
	if c.madeDir {
		_ = os.Remove(filepath.Dir(c.path))
	}
	return err
}

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
