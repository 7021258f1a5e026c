package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/hosted"
	"github.com/flowtally/flowtally/internal/plugintest"
	"github.com/flowtally/flowtally/internal/trust"
	"github.com/flowtally/flowtally/plugin"
)

// The test binary is also every plugin and host that the tests need: the
// environment says which it is to be.
const (
	roleEnv    = "FLOWTALLY_TEST_ROLE"
	addressEnv = "FLOWTALLY_TEST_ADDRESS"
	markerEnv  = "FLOWTALLY_TEST_MARKER" // a file that gets a line for each start and each close of an instance
)

func TestMain(m *testing.M) {
	role := os.Getenv(roleEnv)
	if role == "" {
		os.Exit(m.Run())
	}
	run, ok := roles[role]
	if !ok {
		fmt.Fprintf(os.Stderr, "no role %q\n", role)
		os.Exit(97)
	}
	os.Exit(run())
}

// unclosed is an instance that cannot be closed.
type unclosed struct{ dataplane.Service }

func (unclosed) Close() error { return errors.New("a call does not return") }

var roles = map[string]func() int{
	"fake": func() int { return plugin.Serve(plugin.ServeOptions{Factory: noted}) },
	"told": told,
	"hostile-log": func() int {
		writeHostileLog(os.Stderr)
		return plugin.Serve(plugin.ServeOptions{Factory: func(ctx context.Context, cfg dataplane.Config, l *slog.Logger) (dataplane.Service, error) {
			l.Error("before the garbage", "n", 1)
			writeHostileLog(fd2{})
			writeHostileLog(os.Stdout) // go-plugin's pipes by now
			writeHostileLog(os.Stderr)
			l.Warn("behind the garbage", "object", map[string]int{"a": 1})
			return noted(ctx, cfg, l)
		}})
	},
	"version-2": func() int {
		goplugin.Serve(&goplugin.ServeConfig{
			HandshakeConfig:  plugin.Handshake,
			VersionedPlugins: map[int]goplugin.PluginSet{2: {"dataplane": &nothing{}}},
			GRPCServer:       goplugin.DefaultGRPCServer,
		})
		return 0
	},
	"wrong-cookie": func() int {
		os.Setenv(plugin.Handshake.MagicCookieKey, "something else")
		return plugin.Serve(plugin.ServeOptions{Factory: noted})
	},
	// Names another address than its own in its handshake: addressEnv has the network and the address. The network "link" is
	// a link to the address, in the directory of its socket.
	"misleads": func() int {
		network, address, _ := strings.Cut(os.Getenv(addressEnv), " ")
		if network == "link" {
			link := filepath.Join(os.Getenv(goplugin.EnvUnixSocketDir), "plugin")
			if err := os.Symlink(address, link); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			network, address = "unix", link
		}
		fmt.Printf("1|%d|%s|%s|grpc\n", plugin.ProtocolVersion, network, address)
		time.Sleep(time.Hour)
		return 0
	},
	"silent": func() int { time.Sleep(time.Hour); return 0 },
	"exit-3": func() int { fmt.Fprintln(os.Stderr, "the moon is in the wrong phase"); return 3 },
	"babbles": func() int {
		fmt.Println("hello, I am no plugin")
		time.Sleep(time.Hour)
		return 0
	},
	"net-rpc": func() int {
		fmt.Println("1|1|unix|" + os.Getenv(goplugin.EnvUnixSocketDir) + "/nonexistent|netrpc|")
		time.Sleep(time.Hour)
		return 0
	},
	"orphans": func() int { // its child holds the pipes open
		p, err := os.StartProcess("/bin/sleep", []string{"sleep", "5"}, &os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr}})
		if err != nil {
			return 98
		}
		fmt.Fprintln(os.Stderr, "child", p.Pid)
		return 4
	},
	"refuses": func() int {
		return plugin.Serve(plugin.ServeOptions{Factory: func(context.Context, dataplane.Config, *slog.Logger) (dataplane.Service, error) {
			return nil, fmt.Errorf("mirror /dev/shm/x: %w", dataplane.ErrInUse)
		}})
	},
	"panics": func() int {
		return plugin.Serve(plugin.ServeOptions{Factory: func(context.Context, dataplane.Config, *slog.Logger) (dataplane.Service, error) {
			panic("no luck today")
		}})
	},
	"dawdles": func() int {
		return plugin.Serve(plugin.ServeOptions{Factory: func(ctx context.Context, _ dataplane.Config, _ *slog.Logger) (dataplane.Service, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}})
	},
	"fails-to-close": func() int { // as one with a call that does not return
		if len(os.Args) == 3 && os.Args[1] == hosted.ReleaseWord {
			l, err := hosted.Parse(os.Args[2])
			if err == nil {
				err = os.RemoveAll(l.Pins)
			}
			if err != nil {
				return 1
			}
			return 0
		}
		return plugin.Serve(plugin.ServeOptions{Factory: func(ctx context.Context, cfg dataplane.Config, l *slog.Logger) (dataplane.Service, error) {
			svc, err := noted(ctx, cfg, l)
			return unclosed{svc}, err
		}})
	},
	"never-closes": func() int {
		return plugin.Serve(plugin.ServeOptions{Factory: func(ctx context.Context, cfg dataplane.Config, l *slog.Logger) (dataplane.Service, error) {
			svc, err := noted(ctx, cfg, l)
			return &slow{Service: svc, close: time.Hour}, err
		}})
	},
	"slow": func() int { // to add a flow whose name begins with "slow" takes until there is a file, with "stuck" for ever;
		// "slow-kept" is decided on before its caller gives up, and "slow-deadly" ends the process while it is undone
		return plugin.Serve(plugin.ServeOptions{Factory: func(ctx context.Context, cfg dataplane.Config, l *slog.Logger) (dataplane.Service, error) {
			svc, err := noted(ctx, cfg, l)
			return &slow{Service: svc}, err
		}})
	},
	"freezes": func() int { // its second life stops itself when the host subscribes to events
		return plugin.Serve(plugin.ServeOptions{Factory: func(ctx context.Context, cfg dataplane.Config, l *slog.Logger) (dataplane.Service, error) {
			svc, err := noted(ctx, cfg, l)
			marker, _ := os.ReadFile(os.Getenv(markerEnv))
			if err == nil && strings.Count(string(marker), "start") == 2 {
				svc = freezing{svc}
			}
			return svc, err
		}})
	},
	// Starts a plugin, prints its process, and waits to be killed.
	"host": func() int {
		signal.Ignore(syscall.SIGINT)
		c, err := plugin.Launch(context.Background(), plugin.Options{Path: os.Args[0], Env: []string{roleEnv + "=fake"}})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		info, err := c.Info(context.Background())
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Println(info.PID)
		time.Sleep(time.Hour)
		return 0
	},
	"place": func() int { // of the control socket, and whether the program has the privileges of its file
		fmt.Println(plugin.ControlPath("lb"), plugin.FindControl("lb"), trust.RuntimeDir("") == "")
		return 0
	},
	"dial": func() int { // what another user sees of a control socket
		_, err := plugin.Dial(context.Background(), os.Args[1])
		fmt.Println(err)
		return 0
	},
}

// nothing is a plugin that serves no calls.
type nothing struct {
	goplugin.NetRPCUnsupportedPlugin
}

func (*nothing) GRPCServer(*goplugin.GRPCBroker, *grpc.Server) error { return nil }
func (*nothing) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, nil
}

// fd2 is the real stderr: go-plugin replaced os.Stderr.
type fd2 struct{}

func (fd2) Write(p []byte) (int, error) { return syscall.Write(2, p) }

func writeHostileLog(w io.Writer) {
	for _, line := range []string{
		`{"@message": 42}`, `{"@message":"ok","@level":7,"@timestamp":[]}`, `{"@message":{"a":`, `{}`, `[]`, `null`, "\x00\xff\xfe",
		`{"@message":"x","@timestamp":"yesterday","@level":"shout"}`, strings.Repeat("x", 200_000), strings.Repeat("[", 20_000), "",
		`{"@message":"deep","v":` + strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000) + "}",
	} {
		fmt.Fprintln(w, line)
	}
}

// noted is a Fake whose start and close leave a line in the marker file.
func noted(ctx context.Context, cfg dataplane.Config, l *slog.Logger) (dataplane.Service, error) {
	svc, err := plugintest.NewFake(ctx, cfg, l)
	if err != nil {
		return nil, err
	}
	note(fmt.Sprintf("start %d", len(cfg.Flows)))
	return &closeNoted{Fake: svc.(*plugintest.Fake)}, nil
}

type closeNoted struct{ *plugintest.Fake }

func (c *closeNoted) Close() error {
	note("close")
	return c.Fake.Close()
}

func note(what string) {
	path := os.Getenv(markerEnv)
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	fmt.Fprintln(f, what)
}

type slow struct {
	dataplane.Service
	close time.Duration
}

func (s *slow) AddFlows(ctx context.Context, flows ...flow.Flow) ([]dataplane.Placement, error) {
	for _, f := range flows {
		switch {
		case strings.HasPrefix(f.Name, "slow"):
			note("adding_" + f.Name)
			for _, err := os.Stat(os.Getenv(markerEnv) + ".go"); err != nil; _, err = os.Stat(os.Getenv(markerEnv) + ".go") {
				time.Sleep(time.Millisecond)
			}
			switch f.Name {
			case "slow-kept":
				ctx = context.WithoutCancel(ctx)
			case "slow-deadly":
				os.Exit(3)
			}
		case strings.HasPrefix(f.Name, "stuck"):
			note("adding_" + f.Name)
			time.Sleep(time.Hour)
		}
	}
	return s.Service.AddFlows(ctx, flows...)
}

func (s *slow) SetFlows(ctx context.Context, flows []flow.Flow, opts dataplane.SetOptions) (dataplane.Difference, error) {
	for _, f := range flows {
		if f.Name == "decided" { // the change goes on until there is a file
			note("setting_decided")
			<-ctx.Done()
			outcome := make(chan error, 1)
			go func() {
				for _, err := os.Stat(os.Getenv(markerEnv) + ".go"); err != nil; _, err = os.Stat(os.Getenv(markerEnv) + ".go") {
					time.Sleep(time.Millisecond)
				}
				_, err := s.Service.SetFlows(context.WithoutCancel(ctx), flows, opts)
				outcome <- err
			}()
			return dataplane.Difference{}, &dataplane.UnfinishedError{Cause: ctx.Err(), Outcome: outcome}
		}
		if strings.HasPrefix(f.Name, "stuck") {
			note("setting_" + f.Name)
			time.Sleep(time.Hour)
		}
	}
	return s.Service.SetFlows(ctx, flows, opts)
}

func (s *slow) Close() error {
	time.Sleep(s.close)
	return s.Service.Close()
}

type freezing struct{ dataplane.Service }

func (freezing) Events(ctx context.Context) (<-chan dataplane.Event, error) {
	note(fmt.Sprintf("freezing %d", os.Getpid()))
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		return nil, err
	}
	<-ctx.Done() // this thread may run on for a moment
	return nil, ctx.Err()
}

// options start this binary in a role.
func options(t testing.TB, role string) plugin.Options {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return plugin.Options{
		Path: self, Env: []string{roleEnv + "=" + role},
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
}

func launch(t testing.TB, opts plugin.Options) *plugin.Client {
	t.Helper()
	c, err := plugin.Launch(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// eventually waits for cond, which takes up to a few seconds on a busy machine.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		if cond() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func pid(t testing.TB, c *plugin.Client) int {
	t.Helper()
	info, err := c.Info(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return info.PID
}
