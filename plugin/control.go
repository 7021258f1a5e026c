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

// Control is a listening control socket. Clients can connect before Serve is called, and wait for it.
type Control struct {
	path string
	log  *slog.Logger

	mu      sync.Mutex
	socket  socket // replaced whenever somebody removes its file
	madeDir bool   // ListenControl made the directory, so Close removes it if it is empty
	closed  bool
}

// ListenControl opens a control socket at path, such as [ControlPath]; call [Control.Serve] to answer. A program that
// listens before it starts its instance learns early that another process already serves the path ([dataplane.ErrInUse]).
//
// A missing directory is made with mode 0700. A directory that another user owns or can write to is an error. The
// socket left behind by a dead process is replaced. A nil log discards.
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

// Serve passes the calls of clients to svc until ctx ends or Close is called. It then aborts the calls under way and
// closes the socket. The caller still owns svc and must close it. If somebody removes the file of the socket meanwhile,
// Serve makes a new one.
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
			continue // keepName has replaced the socket
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

// Close stops listening and removes the socket. It is idempotent, and Serve calls it.
func (c *Control) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true

	err := c.socket.Close()
	if errors.Is(err, net.ErrClosed) { // the gRPC server of Serve has closed it
		err = nil
	}
	if c.socket.hasName() {
		err = errors.Join(err, os.Remove(c.path))
	}

	lock := c.socket.lock
	if isNameOf(lock.Name(), lock.Stat) {
		_ = os.Remove(lock.Name()) // before the lock is released: afterwards the file may be another process's lock
	}
	lock.Close()
	if c.madeDir {
		_ = os.Remove(filepath.Dir(c.path))
	}
	return err
}

// asked logs which user and process requested a change over the control socket. Calls of the host, which come over the
// plugin's own connection, are not logged.
func (s *server) asked(ctx context.Context, change string) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return
	}
	if c, is := p.Addr.(caller); is {
		s.log.Info("asked over the control socket", "for", change, "user", c.uid, "process", c.pid)
	}
}
