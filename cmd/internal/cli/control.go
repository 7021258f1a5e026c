package cli

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/plugin"
	"github.com/flowtally/flowtally/shm"
)

// socketFlag names the instance to talk to.
type socketFlag struct {
	Instance instanceName `help:"The instance: names the control socket." default:"default" env:"FLOWTALLY_INSTANCE" placeholder:"NAME"`
	Socket   string       `help:"The control socket. Empty: /run/flowtally-control/INSTANCE.sock, or flowtally-control in $$XDG_RUNTIME_DIR of another user than root." env:"FLOWTALLY_SOCKET" placeholder:"PATH"`
}

// path returns the path of the control socket.
func (s socketFlag) path() string {
	if s.Socket != "" {
		return s.Socket
	}
	return plugin.FindControl(string(s.Instance))
}

// controlFlag names the instance to talk to, and for how long.
type controlFlag struct {
	socketFlag
	Timeout time.Duration `help:"Give up on an instance that has not answered by then. 0: wait." default:"0" placeholder:"DURATION"`
}

// with calls f with the running instance. The context of f ends after --timeout. f must not print: the reader of the
// output may be slow, and its time would count.
func (c controlFlag) with(env *Env, f func(context.Context, dataplane.Service) error) error {
	if c.Timeout < 0 {
		return usagef("--timeout %v: not negative", c.Timeout)
	}
	return c.talk(env, c.Timeout, f)
}

// talk calls f with the running instance. The context of f ends after timeout, or only with the command if timeout is 0.
func (s socketFlag) talk(env *Env, timeout time.Duration, f func(context.Context, dataplane.Service) error) (err error) {
	whom, answered := s.sayWaiting(env)
	defer answered()

	ctx := env.Context
	if timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		ctx = limited
		defer func() {
			if errors.Is(err, context.DeadlineExceeded) && env.Context.Err() == nil {
				err = withHint(fmt.Errorf("%s has not answered within %v: %w", whom.Load(), timeout, err),
					"a longer --timeout; a plugin that stands still for %v is started again", plugin.DefaultWatchdog)
			}
		}()
	}

	svc, info, err := s.dial(ctx, env.named)
	switch {
	case errors.Is(err, dataplane.ErrUnavailable):
		return s.unreached(err)
	case errors.Is(err, dataplane.ErrPermission):
		return withHint(err, "SUDO # or as the user who runs the instance")
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, svc.Close()) }()

	if info.PID != 0 {
		whom.Store(fmt.Sprintf("instance %s, process %d", info.Instance, info.PID))
	}
	return f(ctx, svc)
}

// quiet is how long a command waits silently for an instance.
const quiet = 2 * time.Second

// sayWaiting prints after a while for whom the command is waiting, unless the caller has called answered by then. The
// caller may store a better name in whom.
func (s socketFlag) sayWaiting(env *Env) (whom *atomic.Value, answered func() bool) {
	whom = new(atomic.Value)
	whom.Store("the instance at " + s.path())
	slow := time.AfterFunc(quiet, func() { fmt.Fprintf(env.Stderr, "flowtally: waiting for %s\n", whom.Load()) })
	return whom, slow.Stop
}

// dial connects to the running instance. If the user named an instance beside --socket, dial returns an error unless the
// socket is of that instance; named is "" if the user did not.
func (s socketFlag) dial(ctx context.Context, named string) (svc dataplane.Service, info dataplane.Info, err error) {
	if svc, err = plugin.Dial(ctx, s.path()); err != nil {
		return nil, info, err
	}

	info, err = svc.Info(ctx)
	switch {
	case err != nil:
		err = fmt.Errorf("reading the identity of the instance at %s: %w", s.path(), err)
	case named != "" && named != info.Instance:
		err = withHint(usagef("%s is the socket of instance %s, and --instance or $FLOWTALLY_INSTANCE names instance %s", s.path(), info.Instance, named),
			"give one of --socket and --instance; $FLOWTALLY_SOCKET counts as the first")
	}
	if err != nil {
		return nil, info, errors.Join(err, svc.Close())
	}
	return svc, info, nil
}

// unreached adds a next step to the error of a control socket on which no process listens.
func (s socketFlag) unreached(err error) error {
	if s.Socket == "" && s.counts() {
		return withHint(err, "--socket PATH # instance %s counts, but listens elsewhere or not at all; a program that embeds it calls plugin.ListenControl", s.Instance)
	}
	return withHint(err, "flowtally run --config FILE # starts an instance; --instance NAME or --socket PATH reaches another")
}

// counts reports whether the instance runs all the same: its mirror has a living writer.
func (s socketFlag) counts() bool {
	in, err := shm.Open(string(s.Instance))
	if err != nil {
		return false
	}
	defer in.Close()
	return in.Reader().Status().Alive
}
