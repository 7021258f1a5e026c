package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/plugintest"
	"github.com/flowtally/flowtally/plugin"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

// controlled serves a Fake on a control socket until the test ends.
func controlled(t testing.TB, path string) (*plugintest.Fake, *plugin.Control) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the control socket is Linux's")
	}
	svc, err := plugintest.NewFake(t.Context(), dataplane.Config{Instance: "test"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := plugin.ListenControl(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- c.Serve(context.Background(), svc) }()
	t.Cleanup(func() {
		c.Close()
		if err := <-served; err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	return svc.(*plugintest.Fake), c
}

func dial(t testing.TB, path string) dataplane.Service {
	t.Helper()
	svc, err := plugin.Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { svc.Close() })
	return svc
}

func TestControlSocketServesSeveralClients(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made", "test.sock")
	fake, control := controlled(t, path)
	for p, want := range map[string]os.FileMode{filepath.Dir(path): 0o700, path: 0o600} {
		if info, err := os.Stat(p); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has the mode %v, %v", p, info.Mode(), err)
		}
	}
	a, b := dial(t, path), dial(t, path)
	if _, err := a.AddFlows(t.Context(), flow.Flow{Name: "from-a"}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.AddFlows(t.Context(), flow.Flow{Name: "from-a"}); !errors.Is(err, dataplane.ErrExists) {
		t.Errorf("adding it again: %v", err)
	}
	events, err := b.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if _, err := a.Info(t.Context()); !errors.Is(err, dataplane.ErrClosed) {
		t.Errorf("a call after Close: %v", err)
	}
	if placed, err := b.Placements(t.Context()); err != nil || len(placed) != 1 {
		t.Errorf("the instance after a client's Close: %v, %v", placed, err)
	}
	if got := fake.Order(); len(got) != 1 {
		t.Errorf("the instance holds %q", got)
	}
	control.Close()
	eventually(t, "the socket to go", func() bool { _, err := os.Lstat(path); return errors.Is(err, os.ErrNotExist) })
	eventually(t, "calls to be unavailable", func() bool {
		_, err := b.Info(t.Context())
		return errors.Is(err, dataplane.ErrUnavailable)
	})
	for range events { // it ends
	}
	if _, err := fake.Info(t.Context()); err != nil {
		t.Errorf("the instance behind a control socket that closed: %v", err)
	}
}

// The socket comes back whatever else was removed with it, and connected clients stay connected.
func TestRemovedControlSocketIsMadeAgain(t *testing.T) {
	for name, remove := range map[string]func(path string) error{
		"the socket":    os.Remove,
		"the lock too":  func(path string) error { return errors.Join(os.Remove(path), os.Remove(path+".lock")) },
		"the directory": func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
		"replaced": func(path string) error {
			return errors.Join(os.Remove(path), syscall.Mknod(path, syscall.S_IFSOCK|0o600, 0))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "made", "test.sock")
			_, control := controlled(t, path)
			before := dial(t, path)
			if _, err := before.Info(t.Context()); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := remove(path); err != nil {
					t.Fatal(err)
				}
				eventually(t, "the socket to be back", func() bool {
					svc, err := plugin.Dial(t.Context(), path)
					if err != nil {
						return false
					}
					defer svc.Close()
					_, err = svc.Info(t.Context())
					return err == nil
				})
			}
			for p, want := range map[string]os.FileMode{filepath.Dir(path): 0o700, path: 0o600} {
				if info, err := os.Stat(p); err != nil || info.Mode().Perm() != want {
					t.Errorf("%s has the mode %v, %v", p, info.Mode(), err)
				}
			}
			if _, err := before.Info(t.Context()); err != nil {
				t.Errorf("a client that was connected: %v", err)
			}
			if c, err := plugin.ListenControl(path, nil); !errors.Is(err, dataplane.ErrInUse) {
				t.Errorf("a second instance: %v, %v", c, err)
			}
			if err := control.Close(); err != nil {
				t.Error(err)
			}
			// Close also removes the directory, which was made for the socket.
			if left, err := os.ReadDir(filepath.Dir(path)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("left are %v, %v", left, err)
			}
		})
	}
}

// The first socket loses its directory, and another instance takes the path. The first must not take it back.
func TestListenFailsOnAPathThatAnotherInstanceTook(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the control socket is Linux's")
	}
	path := filepath.Join(t.TempDir(), "d", "s.sock")
	first, err := plugin.ListenControl(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	controlled(t, path)
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if _, err := dial(t, path).Info(t.Context()); err != nil {
		t.Errorf("the second after the first closed: %v", err)
	}
	if c, err := plugin.ListenControl(path, nil); !errors.Is(err, dataplane.ErrInUse) {
		t.Errorf("a third instance: %v, %v", c, err)
	}
}

// Several goroutines listen on one path and close again. There is never more than one socket.
func TestOneListenerAtATimeHoldsAPathAndTheLastLeavesNothing(t *testing.T) {
	need.Root(t)
	path := filepath.Join(t.TempDir(), "d", "s.sock")
	var holders, turns atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for had := 0; had < 25; {
				c, err := plugin.ListenControl(path, nil)
				if err != nil {
					if !errors.Is(err, dataplane.ErrInUse) {
						t.Errorf("listening: %v", err)
						return
					}
					continue
				}
				if n := holders.Add(1); n != 1 {
					t.Errorf("%d hold the socket", n)
				}
				turns.Add(1)
				had++
				if _, err := os.Lstat(path); err != nil {
					t.Errorf("the holder's socket: %v", err)
				}
				holders.Add(-1)
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	// A holder that made the directory removes it, but only if it is empty.
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil && !errors.Is(err, fs.ErrNotExist) || len(left) != 0 || turns.Load() != 100 {
		t.Errorf("after %d turns there is left %v, %v", turns.Load(), left, err)
	}
}

func TestLogNamesUserAndProcessThatAskedForAChange(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the control socket is Linux's")
	}
	var log syncBuffer
	path := filepath.Join(t.TempDir(), "log", "test.sock")
	fake, err := plugintest.NewFake(t.Context(), dataplane.Config{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := plugin.ListenControl(path, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- c.Serve(context.Background(), fake) }()
	t.Cleanup(func() { c.Close(); <-served })
	svc := dial(t, path)
	web := flow.Flow{Name: "web"}
	said := ""
	ask := func(err error, want string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		line := ""
		if want != "" {
			line = fmt.Sprintf("for=%q user=%d process=%d\n", want, os.Getuid(), os.Getpid())
		}
		got := strings.TrimPrefix(log.String(), said)
		if said += got; !strings.HasSuffix(got, line) || strings.Count(got, "\n") != strings.Count(line, "\n") {
			t.Errorf("the log goes on with %q, want %q at its end", got, line)
		}
	}
	_, err = svc.AddFlows(t.Context(), web)
	ask(err, "adding flows")
	_, err = svc.SetFlows(t.Context(), []flow.Flow{web}, dataplane.SetOptions{})
	ask(err, "setting flows")
	_, err = svc.SetFlows(t.Context(), nil, dataplane.SetOptions{DryRun: true})
	ask(err, "")
	_, err = svc.Placements(t.Context())
	ask(err, "")
	ask(svc.RemoveFlows(t.Context(), "web"), "removing flows")
	_, err = svc.ReserveWords(t.Context(), "words")
	ask(err, "reserving words")
	ask(svc.ReleaseWords(t.Context(), "words"), "releasing words")
}

// A client of the control socket can change flows, but the instance belongs to its host.
func TestControlClientsCannotConfigureOrClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c", "test.sock")
	fake, _ := controlled(t, path)
	cc, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	rpc := pluginv1.NewDataplaneClient(cc)
	if _, err := rpc.Close(t.Context(), &pluginv1.CloseRequest{}); err == nil || !strings.Contains(err.Error(), "PermissionDenied") {
		t.Errorf("Close: %v", err)
	}
	if _, err := rpc.Configure(t.Context(), &pluginv1.ConfigureRequest{Config: &pluginv1.Config{}}); err == nil || !strings.Contains(err.Error(), "PermissionDenied") {
		t.Errorf("Configure: %v", err)
	}
	if _, err := fake.Info(t.Context()); err != nil {
		t.Errorf("the instance: %v", err)
	}
}

func TestListenFailsWhereOtherUsersCouldChangeTheSocket(t *testing.T) {
	need.Root(t) // to give directories away
	listen := func(path string) error {
		c, err := plugin.ListenControl(path, nil)
		if err == nil {
			c.Close()
		}
		return err
	}
	dir := func(t *testing.T, mode os.FileMode, uid int) string {
		d := filepath.Join(t.TempDir(), "d")
		if err := errors.Join(os.Mkdir(d, 0o700), os.Chmod(d, mode), os.Chown(d, uid, -1)); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(d, "s.sock")
	}
	t.Run("usable directories", func(t *testing.T) {
		for _, mode := range []os.FileMode{0o700, 0o750, 0o755} {
			if err := listen(dir(t, mode, 0)); err != nil {
				t.Errorf("%v: %v", mode, err)
			}
		}
	})
	t.Run("writable by others", func(t *testing.T) {
		for _, mode := range []os.FileMode{0o770, 0o702, 0o777} {
			if err := listen(dir(t, mode, 0)); !errors.Is(err, dataplane.ErrPermission) || !strings.Contains(err.Error(), "chmod go-w") {
				t.Errorf("%v: %v", mode, err)
			}
		}
		path := dir(t, 0o777|os.ModeSticky, 0) // like /tmp, which the next step must leave as it is
		err := listen(path)
		if !errors.Is(err, dataplane.ErrPermission) || strings.Contains(err.Error(), "chmod") {
			t.Fatalf("in a directory of all users: %v", err)
		}
		_, next, _ := strings.Cut(err.Error(), "as ")
		if err := listen(next); err != nil {
			t.Errorf("the next step, %q: %v", next, err)
		}
	})
	t.Run("of another user", func(t *testing.T) {
		if err := listen(dir(t, 0o700, 12345)); !errors.Is(err, dataplane.ErrPermission) || !strings.Contains(err.Error(), "12345") {
			t.Error(err)
		}
	})
	t.Run("below a directory of another user", func(t *testing.T) {
		path := dir(t, 0o700, 0)
		if err := os.Chown(filepath.Dir(filepath.Dir(path)), 12345, 12345); err != nil {
			t.Fatal(err)
		}
		if err := listen(path); !errors.Is(err, dataplane.ErrPermission) || !strings.Contains(err.Error(), "12345") || !strings.Contains(err.Error(), "or name a socket elsewhere") {
			t.Error(err)
		}
	})
	t.Run("a link as the directory", func(t *testing.T) {
		path := dir(t, 0o700, 0)
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(filepath.Dir(path), link); err != nil {
			t.Fatal(err)
		}
		if err := listen(filepath.Join(link, "s.sock")); !errors.Is(err, dataplane.ErrPermission) {
			t.Error(err)
		}
	})
	t.Run("a file in the way", func(t *testing.T) {
		path := dir(t, 0o700, 0)
		if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := listen(path); !errors.Is(err, dataplane.ErrInvalid) {
			t.Error(err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
			t.Errorf("the file is now %q, %v", b, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := listen(path); err != nil { // the failure let go of the lock
			t.Error(err)
		}
	})
	t.Run("left by a dead process", func(t *testing.T) {
		path := dir(t, 0o700, 0)
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		l.Close()
		if _, err := plugin.Dial(t.Context(), path); !errors.Is(err, dataplane.ErrUnavailable) || !strings.Contains(err.Error(), "died") {
			t.Errorf("dialing it: %v", err)
		}
		controlled(t, path)
		if _, err := dial(t, path).Info(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("of a live process", func(t *testing.T) {
		path := dir(t, 0o700, 0)
		controlled(t, path)
		if err := listen(path); !errors.Is(err, dataplane.ErrInUse) {
			t.Errorf("the second: %v", err)
		}
		if _, err := dial(t, path).Info(t.Context()); err != nil {
			t.Errorf("the first after the second: %v", err)
		}
	})
	t.Run("of a live process that is not ours", func(t *testing.T) {
		path := dir(t, 0o700, 0)
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := listen(path); !errors.Is(err, dataplane.ErrInUse) {
			t.Error(err)
		}
	})
	t.Run("no parent", func(t *testing.T) {
		if err := listen(filepath.Join(t.TempDir(), "a", "b", "s.sock")); !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	})
	t.Run("too long a path", func(t *testing.T) {
		if err := listen(filepath.Join(filepath.Dir(dir(t, 0o700, 0)), strings.Repeat("s", 120))); err == nil {
			t.Error("it was taken")
		}
	})
}

func TestDialWithoutASocketSaysHowToStartAnInstance(t *testing.T) {
	if _, err := plugin.Dial(t.Context(), filepath.Join(t.TempDir(), "s.sock")); !errors.Is(err, dataplane.ErrUnavailable) || !strings.Contains(err.Error(), "flowtally run") {
		t.Errorf("no socket: %v", err)
	}
	if got := plugin.ControlPath(""); got != "/run/flowtally-control/default.sock" {
		t.Error(got)
	}
}

// Modes keep other users out. Should somebody loosen the modes, the check of the peer's credentials still does.
func TestAnotherUserIsKeptOutByModesAndByCredentials(t *testing.T) {
	need.Root(t)
	base, err := os.MkdirTemp("", "flowtally-peer-") // t.TempDir cannot be entered by others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(base, "client")
	b, err := os.ReadFile(self)
	if err == nil {
		err = errors.Join(os.WriteFile(program, b, 0o755), os.Chmod(base, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(base, "d", "s.sock")
	controlled(t, path)
	dialAs := func(uid uint32) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, path)
		cmd.Env = append(os.Environ(), roleEnv+"=dial")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, NoSetGroups: true}}
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("running the client as %d: %v", uid, err)
		}
		return strings.TrimSpace(string(out))
	}
	if got := dialAs(0); got != "<nil>" {
		t.Errorf("root got %q", got)
	}
	if got := dialAs(65534); !strings.Contains(got, "dialing "+path) || !strings.Contains(got, "missing privilege") {
		t.Errorf("nobody got %q", got)
	}
	if err := errors.Join(os.Chmod(filepath.Dir(path), 0o777), os.Chmod(path, 0o666)); err != nil {
		t.Fatal(err)
	}
	if got := dialAs(65534); !strings.Contains(got, "hung up") {
		t.Errorf("nobody, let through by the modes, got %q", got)
	}
	if got := dialAs(0); got != "<nil>" {
		t.Errorf("root got %q", got)
	}
}
