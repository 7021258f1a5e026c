package top

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/internal/lab/golden"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/shm"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// stageEnv makes this test binary a program that shows the mirror of that path at a fixed time.
const (
	stageEnv = "FLOWTALLY_TOP_STAGE"
	timeEnv  = "FLOWTALLY_TOP_TIME"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(stageEnv); path != "" {
		now, err := strconv.ParseInt(os.Getenv(timeEnv), 10, 64)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = Run(ctx, Options{
			Path: path, Interval: 20 * time.Millisecond, Now: func() int64 { return now }, Input: os.Stdin, Output: os.Stdout,
			Open: func() (*shm.Instance, error) { return shm.OpenPath(path) },
		})
		stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// terminal is a tmux window that runs the program of stageEnv.
type terminal struct {
	t      *testing.T
	socket string
}

// patience bounds each wait for a screen.
const patience = time.Minute

// open starts a window of that size with a shell command.
func open(t *testing.T, width, height int, env []string, command string) *terminal {
	t.Helper()
	need.Tool(t, "tmux", "sh")
	dir, err := os.MkdirTemp("", "top") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	term := &terminal{t, filepath.Join(dir, "s")}
	args := []string{"-u", "-f", os.DevNull, "new-session", "-d", "-x", strconv.Itoa(width), "-y", strconv.Itoa(height)}
	for _, e := range append([]string{"LC_ALL=C.UTF-8", "NO_COLOR="}, env...) {
		args = append(args, "-e", e)
	}
	term.tmux(append(args, command)...)
	t.Cleanup(func() { term.tmux("kill-server") })
	return term
}

func (m *terminal) tmux(args ...string) string {
	m.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", m.socket}, args...)...).CombinedOutput()
	if err != nil {
		m.t.Fatalf("tmux %q: %v\n%s", args, err, out)
	}
	return string(out)
}

func (m *terminal) keys(keys ...string) {
	m.t.Helper()
	m.tmux(append([]string{"send-keys"}, keys...)...)
}

func (m *terminal) capture() string { return m.tmux("capture-pane", "-p") }

// awaits waits until the screen has a text.
func (m *terminal) awaits(expr string) string {
	m.t.Helper()
	re, screen := regexp.MustCompile(expr), ""
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if screen = m.capture(); re.MatchString(screen) {
			return screen
		}
	}
	m.t.Fatalf("no %q on the screen after %v:\n%s", expr, patience, screen)
	return ""
}

// shows waits until the screen is the one of a golden file. expr is on no screen before it.
func (m *terminal) shows(name, expr string) {
	m.t.Helper()
	path := filepath.Join("testdata", "golden", name+".txt")
	screen := m.awaits(expr)
	want, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.t.Fatal(err)
	}
	for end := time.Now().Add(patience); screen != string(want) && !*update && time.Now().Before(end); screen = m.capture() {
		time.Sleep(20 * time.Millisecond)
	}
	if *update {
		time.Sleep(time.Second)
		screen = m.capture()
	}
	golden.Compare(m.t, path, screen, *update)
}

// gallery is a mirror with a row of each kind.
func gallery(t *testing.T) *stage {
	s := newStage(t)
	long := strings.Repeat("tenant-0000007/", 5)[:63]
	s.add(shm.Entry{Name: long, Source: "xdp eth0 native", ByteBasis: "l2", Valid: true, Text: "ingress on eth0: ipv4 dst 192.0.2.10 tcp dport 443",
		Labels: map[string]string{"team": "shop", "site": "ams"}}, 18_446_744_073, 9_223_372_036_854)
	s.add(shm.Entry{Name: "web", Source: "xdp eth0 native", ByteBasis: "l2", Valid: true, Labels: map[string]string{"team": "shop"}}, 1_000_000, 64_000_000)
	s.add(shm.Entry{Name: "dns", Source: "rdma mlx5_0", ByteBasis: "l2", Valid: true, Ambiguous: true}, 5000, 400_000)
	s.add(shm.Entry{Name: "idle", Source: "xdp eth0 native", ByteBasis: "l2", Valid: true}, 7, 420)
	s.add(shm.Entry{Name: "moved", Source: "xdp eth1 generic", ByteBasis: "l2", Valid: true, Stale: true, Continuity: shm.Continuity{Discontinuities: 2}}, 80, 8000)
	s.add(shm.Entry{Name: "漢字の名前", Source: "sim", Valid: true}, 90, 9000)
	s.add(shm.Entry{Name: "near-sent", Kind: shm.KindCompletion, Unit: "completions", Source: "rdma rxe0 cq", Valid: true}, 300, 2)
	for i := range 40 {
		s.add(shm.Entry{Name: fmt.Sprintf("flow-%02d", i), Source: "xdp eth0 native", ByteBasis: "l2", Valid: true}, uint64(1000*i), uint64(100_000*i))
	}
	s.publish("web", "dns", long, "near-sent", "漢字の名前")
	for i := range uint64(20) {
		s.pass(1, second, map[string][2]uint64{
			"web": {100 * (i % 7), 6400 * (i % 7)}, "dns": {50, 4000}, long: {1_234_567 * i, 1_111_110_300 * i}, "near-sent": {10, 0}, "漢字の名前": {i % 2, 60 * (i % 2)},
		})
	}
	s.now += second / 4
	return s
}

// env shows the stage at its present time.
func (s *stage) env() []string {
	return []string{stageEnv + "=" + s.path, timeEnv + "=" + strconv.FormatInt(s.now, 10)}
}

// program is the command of a shell that runs this test binary.
func program(t *testing.T) string {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return "'" + self + "'"
}

func TestScreensMatchTheGoldenFilesInARealTerminal(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {200, 60}} {
		t.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(t *testing.T) {
			s := gallery(t)
			m := open(t, size[0], size[1], s.env(), "exec "+program(t))
			name := fmt.Sprintf("%dx%d-", size[0], size[1])
			m.shows(name+"name", `NAME▲(?s:.*)writer run`)
			m.keys(">")
			m.shows(name+"rate", `PKTS/S▼`)
			m.keys("Enter")
			m.shows(name+"counter", `slot 0, generation 1`)
			m.keys("Escape")
			m.awaits(`PKTS/S▼`)
			m.keys("?")
			m.shows(name+"help", `suspend`)
			m.keys("?")
			m.awaits(`PKTS/S▼`)
			m.keys("/", "t", "e", "a", "m", "=")
			m.shows(name+"filter", `2 of 47 counters`)
			m.keys("Enter", "Space")
			m.shows(name+"paused", `PAUSED`)
			// Another size and back: only the widths of the columns are found anew.
			m.tmux("resize-window", "-x", "60", "-y", "10")
			m.awaits(`^(.*\n){9}.*PAUSED.*\n$`)
			m.tmux("resize-window", "-x", strconv.Itoa(size[0]), "-y", strconv.Itoa(size[1]))
			m.shows(name+"resized", `^(.*\n){23}(?s:.*)PAUSED`)
		})
	}
}

// After ctrl+z, fg and q, the shell has its terminal again, with the last screen on it.
func TestShellGetsItsTerminalBack(t *testing.T) {
	s := gallery(t)
	m := open(t, 80, 24, s.env(), "exec bash --norc --noprofile -i")
	need.Tool(t, "bash")
	const prompt = `bash-[0-9.]+[#$]`
	m.awaits(prompt)
	m.keys(program(t), "Enter")
	m.awaits(`NAME▲(?s:.*)writer run`)
	m.keys("C-z")
	m.awaits(`Stopped(?s:.*)` + prompt)
	m.keys("fg", "Enter")
	m.awaits(`NAME▲(?s:.*)writer run`)
	m.keys(">")
	m.awaits(`PKTS/S▼`)
	m.keys("q")
	m.awaits(`PKTS/S▼(?s:.*)q quit\n` + prompt)
	m.keys("echo code $?", "Enter")
	m.awaits(`\ncode 0\n`)
}

func TestNoColorTurnsColorsOff(t *testing.T) {
	s := gallery(t)
	colored := regexp.MustCompile(`\x1b\[[0-9;]*(3|4|9|10)[0-7]m`)
	for _, c := range []struct {
		env  []string
		want bool
	}{{nil, true}, {[]string{"NO_COLOR=1"}, false}} {
		m := open(t, 80, 24, append(s.env(), c.env...), "exec "+program(t)+" </dev/null") // it reads keys from /dev/tty
		m.awaits(`NAME▲(?s:.*)writer run`)
		m.keys("Down")
		m.awaits(`>flow-00`) // dns, which has a note, is not the selected row
		screen := m.tmux("capture-pane", "-p", "-e")
		if colored.MatchString(screen) != c.want || !strings.Contains(screen, "\x1b[7m") {
			t.Errorf("with %q: colors %v, want %v:\n%q", c.env, !c.want, c.want, screen)
		}
	}
}
