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

// closeGrace limits the closing of an instance after a signal or the death of its host. Every orderly close takes less, and
// a service manager waits longer before it kills.
const closeGrace = 30 * time.Second

// ServeOptions for [Serve].
type ServeOptions struct {
	// Factory creates the instance when the host configures it. Required.
	Factory Factory
	// Program to recommend to a user who starts the plugin by hand. Empty means "flowtally run".
	Program string
}

// Serve is the main function of a plugin. It runs until the host ends the plugin, the host dies, or SIGTERM or SIGINT
// arrives. In each case it closes the instance before it returns the exit code for the process.
//
// Call it once, from main. Nothing may be written to standard output, which belongs to the protocol.
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

// hostOf returns what the host has told this process by its environment. It takes over an inherited descriptor, so call it
// only once.
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

// byHand tells a user who started the plugin by hand what to run instead.
func byHand(w io.Writer, program string) {
	if program == "" {
		program = "flowtally run"
	}
	fmt.Fprintf(w, "This binary is a plugin. It is not meant to be executed directly:\n"+
		"it is started by the program that uses it. To count flows, run `%s`.\n", program)
}

// process closes the instance exactly once and then ends the process, whatever the reason.
type process struct {
	log    *slog.Logger
	server *server

	mu   sync.Mutex
	grpc *grpc.Server // nil until go-plugin serves

	once     sync.Once
	closeErr error
}

// newGRPC makes the gRPC server. go-plugin calls it once, before it serves.
func (p *process) newGRPC(opts []grpc.ServerOption) *grpc.Server {
	s := grpc.NewServer(append(opts, grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage))...)
	p.mu.Lock()
	p.grpc = s
	p.mu.Unlock()
	return s
}

// watchHost stops the plugin when the host dies. The host keeps the other end of a pipe open, and the kernel closes it
// however the host dies. Without such a pipe watchHost does nothing.
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

// stop closes the instance and then the server, which makes goplugin.Serve return. If the instance takes too long, the
// process exits without it, as if it had been killed.
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
		// go-plugin has not made the server yet, so there is no instance either.
		os.Exit(0)
	}
	s.Stop()
}

// close closes the instance once and logs an error.
func (p *process) close() {
	p.once.Do(func() {
		p.closeErr = p.server.close()
		if p.closeErr != nil {
			p.log.Error("closing the instance", "error", p.closeErr)
		}
	})
}

// finish returns the exit code after the server has ended. It closes the instance if nothing else has.
func (p *process) finish() int {
	p.close()

	// The host has made the directory of the socket, but a dead host cannot remove it.
	if dir := os.Getenv(goplugin.EnvUnixSocketDir); dir != "" {
		_ = os.Remove(dir)
	}
	if p.closeErr != nil {
		return 1
	}
	return 0
}
