package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flowtally/flowtally/shm"
)

// output is the output of a running command.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// command is a command line that runs in this process until its context ends.
type command struct {
	t         *testing.T
	out, talk output
	stop      context.CancelFunc
	done      chan int
}

func startCommand(t *testing.T, args ...string) *command {
	ctx, stop := context.WithCancel(t.Context())
	c := &command{t: t, stop: stop, done: make(chan int, 1)}
	go func() { c.done <- Main(ctx, strings.NewReader(""), &c.out, &c.talk, args) }()
	return c
}

// awaits waits until the command's output matches, and calls do before every comparison.
func (c *command) awaits(expr string, do func()) {
	c.t.Helper()
	re := regexp.MustCompile("(?m)" + expr)
	for end := time.Now().Add(patience); !re.MatchString(c.out.String()); time.Sleep(5 * time.Millisecond) {
		select {
		case code := <-c.done:
			c.t.Fatalf("ended with %d before %q\n%s%s", code, expr, &c.out, &c.talk)
		default:
		}
		if time.Now().After(end) {
			c.t.Fatalf("no %q after %v\n%s%s", expr, patience, &c.out, &c.talk)
		}
		do()
	}
}

// ends waits for the end of the command, whose output must match.
func (c *command) ends(expr string) {
	c.t.Helper()
	select {
	case code := <-c.done:
		if code != exitOK || !regexp.MustCompile("(?m)"+expr).MatchString(c.out.String()) {
			c.t.Errorf("ended with %d\n%s%s", code, &c.out, &c.talk)
		}
	case <-time.After(patience):
		c.t.Fatalf("goes on after %v\n%s%s", patience, &c.out, &c.talk)
	}
}

// waiting waits until a Wait of this process sleeps.
func waiting(t *testing.T) {
	t.Helper()
	buf := make([]byte, 1<<20)
	for end := time.Now().Add(patience); !bytes.Contains(buf[:runtime.Stack(buf, true)], []byte("shm.(*sleeper).sleep(")); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no wait after %v", patience)
		}
	}
}

// The file under watch, top and wait is removed, replaced, truncated or overwritten, and its writer makes a new one.
func TestCommandsFollowAMirrorMadeAnew(t *testing.T) {
	for name, damage := range map[string]func(path string, size int64) error{
		"removed":   func(path string, _ int64) error { return os.Remove(path) },
		"cut short": func(path string, _ int64) error { return os.Truncate(path, 100) },
		"cut to 0":  func(path string, _ int64) error { return os.Truncate(path, 0) },
		"replaced": func(path string, _ int64) error {
			return errors.Join(os.WriteFile(path+".other", []byte("no mirror"), 0o644), os.Rename(path+".other", path))
		},
		"overwritten": func(path string, size int64) error {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteAt(make([]byte, size), 0)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			path, w := webMirror(t)
			r, err := shm.OpenReader(path)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			entries, err := r.Entries()
			if err != nil {
				t.Fatal(err)
			}
			st, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			wait := startCommand(t, "wait", "web", "--mirror", path, "--at-least", "1000")
			waiting(t)
			top := startCommand(t, "top", "web", "--mirror", path, "--interval", "10ms")
			watch := startCommand(t, "watch", "web", "--mirror", path, "--interval", "5ms")
			publish := func(packets uint64, c *command, expr string) {
				t.Helper()
				c.awaits(expr, func() {
					w.counters[0].value.Packets = packets
					w.publish(true)
				})
			}
			publish(11, watch, `  web  11 packets `)
			publish(12, top, `^web +12 `)

			if err := damage(path, st.Size()); err != nil {
				t.Fatal(err)
			}
			if err := w.w.Remake(entries); err != nil {
				t.Fatal(err)
			}
			w.w.SetState(shm.Run)
			publish(500, watch, `  web  500 packets `)
			publish(501, top, `^web +501 `)
			publish(1000, top, `^web +1,000 `)
			wait.ends(`^web +flow +1,000 `)
			for _, c := range []*command{top, watch} {
				c.stop()
				c.ends("")
			}
		})
	}
}
