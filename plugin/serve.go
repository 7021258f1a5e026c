package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	hclog "github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/flowtally/flowtally/internal/hosted"
	"github.com/flowtally/flowtally/plugin/internal/child"
	"github.com/flowtally/flowtally/plugin/internal/logwire"
)

// closeGrace bounds the closing of an instance whose host is gone or which was
// signalled: longer than any orderly close, short enough for a service manager.
const closeGrace = 30 * time.Second

// ServeOptions make a plugin.
type ServeOptions struct {
	// Factory makes the instance when the host configures it. Required.
	Factory Factory
	// Program to name to a user who starts the plugin by hand. Empty means "flowtally run".
	Program string
}

// Serve is the main function of a plugin: it serves until the host ends it,
// the host dies, or SIGTERM or SIGINT arrives; each of these closes the
// instance first. The result is the exit code of the process. It is called once, from main, and owns
// stdout: nothing may be written there before.
//
//	func main() { os.Exit(plugin.Serve(plugin.ServeOptions{Factory: newInstance})) }
func Serve(opts ServeOptions) int {
	if len(os.Args) > 1 && slices.Contains([]string{hosted.ReleaseWord, hosted.TrialWord}, os.Args[1]) {
		fmt.Fprintln(os.Stderr, "the main function of this plugin does not call engine.TrialMain, which tries RDMA devices "+
			"and removes what a dead process has left")
		return 1
	}
	if os.Getenv(handshake.MagicCookieKey) != handshake.MagicCookieValue {
		byHand(os.Stderr, opts.Program)
		return 1
	}

	stderr := os.Stderr // goplugin.Serve replaces the variable
	log := logwire.NewLogger(stderr, os.Getenv(logwire.LevelEnv))
	child.NameProcess()
	if err := child.Conceal(); err != nil {
		log.Warn("starting the plugin", "error", err)
	}

	life, end := context.WithCancel(context.Background())
	defer end()
	srv := &server{factory: opts.Factory, life: life, log: log}
	srv.host, srv.hostErr = hostOf()
	p := &process{log: log, server: srv}

	// When the host dies, stderr has no reader: logging must not end this process before the instance is closed.
	signal.Ignore(syscall.SIGPIPE)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() { p.stop("signal " + (<-signals).String()) }()
	if err := p.watchHost(child.HostFDEnv); err != nil {
		log.Error("watching the host", "error", err)
		return 1
	}

	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig:  handshake,
		VersionedPlugins: versions(srv),
		GRPCServer:       p.newGRPC,
		Logger: hclog.New(&hclog.LoggerOptions{
			Name:       "go-plugin",
			Level:      hclog.Warn,
			Output:     stderr,
			JSONFormat: true,
		}),
	})
	return p.finish()
}

// hostOf returns what the host has told this process. It opens the inherited page of verbs, so it is called once.
func hostOf() (hosted.Host, error) {
	verbs, verbsErr := child.Verbs()
	excluded, excludedErr := child.Excluded()
	h := hosted.Host{
		Restart:    os.Getenv(child.RestartEnv) != "",
		Unconfined: os.Getenv(child.UnconfinedEnv),
		Verbs:      verbs,
		Excluded:   excluded,
	}
	if err := errors.Join(verbsErr, excludedErr); err != nil {
		return h, fmt.Errorf("reading the host's configuration: %w", err)
	}
	return h, nil
}

// byHand tells a person who has started the plugin what to run.
func byHand(w io.Writer, program string) {
	if program == "" {
		program = "flowtally run"
	}
	fmt.Fprintf(w, "This binary is a plugin. It is not meant to be executed directly:\n"+
		"it is started by the program that uses it. To count flows, run `%s`.\n", program)
}

// process ends the plugin's process in order, once, whatever the cause.
type process struct {
	log    *slog.Logger
	server *server

	mu   sync.Mutex
	grpc *grpc.Server // nil until go-plugin serves

	once     sync.Once
	closeErr error
}

// newGRPC is called by go-plugin once, before it serves.
func (p *process) newGRPC(opts []grpc.ServerOption) *grpc.Server {
	s := grpc.NewServer(append(opts, grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage))...)
	p.mu.Lock()
	p.grpc = s
	p.mu.Unlock()
	return s
}

// watchHost waits in the background for the end of file on the descriptor that the host holds open as long as it
// lives, however it dies. Without a descriptor it does nothing.
func (p *process) watchHost(variable string) error {
	pipe, err := child.Inherited(variable)
	if pipe == nil || err != nil {
		return err
	}
	go func() {
		_, err := io.Copy(io.Discard, pipe)
		if err != nil {
			p.log.Warn("watching the host", "error", err)
		}
		p.stop("the host is gone")
	}()
	return nil
}

// stop closes the instance, then the server, which ends goplugin.Serve. An instance that does not close in time is
// abandoned: the process exits, and the kernel cleans up as after any process that dies.
func (p *process) stop(why string) {
	p.log.Info("plugin is ending", "reason", why)
	abandon := time.AfterFunc(closeGrace, func() {
		p.log.Error("closing the instance took too long, exiting", "limit", closeGrace)
		os.Exit(1)
	})
	defer abandon.Stop()
	p.close()

	p.mu.Lock()
	s := p.grpc
	p.mu.Unlock()
	if s == nil {
		// go-plugin is between its start and the server; there is nothing to lose.
		os.Exit(0)
	}
	s.Stop()
}

// close closes the instance, and logs an error of that, once.
func (p *process) close() {
	p.once.Do(func() {
		p.closeErr = p.server.close()
		if p.closeErr != nil {
			p.log.Error("closing the instance", "error", p.closeErr)
		}
	})
}

// finish closes the instance after the server has ended, and returns the exit code.
func (p *process) finish() int {
	p.close()

	// The host made the directory of the socket. A host that died cannot remove it.
	if dir := os.Getenv(goplugin.EnvUnixSocketDir); dir != "" {
		_ = os.Remove(dir)
	}
	if p.closeErr != nil {
		return 1
	}
	return 0
}
