package reload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flowtally/flowtally/configs"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/plugintest"
)

// A file is refused until it has been unchanged for a moment, and read afterwards.
func TestAFileThatChangesIsNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.yaml")
	if err := os.WriteFile(path, []byte("backend: sim\nflows: [{name: a, match: any}]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := load(t.Context(), path, time.Hour, 0); err == nil || !strings.Contains(err.Error(), "rename it to this one") {
		t.Errorf("a file that was just written: %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := load(ended, path, time.Hour, time.Hour); err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("a caller that leaves: %v", err)
	}
	if cfg, err := Load(t.Context(), path); err != nil || len(cfg.Flows) != 1 {
		t.Errorf("the file: %+v, %v", cfg, err)
	}
	if _, err := Load(t.Context(), path+"x"); !os.IsNotExist(unwrapAll(err)) {
		t.Errorf("no file: %v", err)
	}
}

// An included file, and the directory with it, must have settled too.
func TestAFragmentThatChangesIsNotRead(t *testing.T) {
	dir := t.TempDir()
	path, fragments := filepath.Join(dir, "f.yaml"), filepath.Join(dir, "conf.d")
	fragment := filepath.Join(fragments, "a.yaml")
	err := errors.Join(os.Mkdir(fragments, 0o755), os.WriteFile(path, []byte("backend: sim\ninclude: conf.d\n"), 0o644),
		os.WriteFile(fragment, []byte("flows: [{name: a, match: any}]\n"), 0o644))
	old := time.Now().Add(-2 * time.Hour)
	for _, name := range []string{path, fragments, fragment} {
		err = errors.Join(err, os.Chtimes(name, old, old))
	}
	if err != nil {
		t.Fatal(err)
	}
	if cfg, err := load(t.Context(), path, time.Hour, 0); err != nil || len(cfg.Flows) != 1 {
		t.Errorf("settled files: %+v, %v", cfg, err)
	}
	for _, name := range []string{fragments, fragment} {
		if err := os.Chtimes(name, time.Time{}, time.Now().Add(-time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := load(t.Context(), path, time.Hour, 0); err == nil || !strings.Contains(err.Error(), "rename it to this one") {
			t.Errorf("%s has changed a minute ago: %v", name, err)
		}
		if err := os.Chtimes(name, time.Time{}, old); err != nil {
			t.Fatal(err)
		}
	}
}

func unwrapAll(err error) error {
	for {
		next, ok := err.(interface{ Unwrap() error })
		if !ok {
			return err
		}
		err = next.Unwrap()
	}
}

// lines is written by one goroutine and read by another.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// The test sends a hundred signals as fast as possible, while the file changes. Then it reloads a file with mistakes,
// and one with a setting that needs a restart. The service manager must be told the begin and the end of each reload,
// in turn.
func TestLoopAppliesTheLastFileAfterManySignals(t *testing.T) {
	svc, err := plugintest.NewFake(t.Context(), dataplane.Config{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	if _, err := svc.AddFlows(t.Context(), flow.Flow{Name: "hand"}); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	text := "backend: sim\n"
	write := func(s string) {
		mu.Lock()
		defer mu.Unlock()
		text = s
	}
	var log, told lines
	signals := make(chan os.Signal, 1)
	ctx, end := context.WithCancel(t.Context())
	loop := &Loop{
		Signals: signals, Service: svc, Logger: slog.New(slog.NewTextHandler(&log, nil)), Instance: "test",
		Notify: func(state string) error { _, err := fmt.Fprintln(&told, state); return err },
		Load: func(context.Context) (dataplane.Config, error) {
			mu.Lock()
			defer mu.Unlock()
			return configs.Parse("f.yaml", []byte(text))
		},
	}
	done := make(chan struct{})
	go func() { defer close(done); loop.Run(ctx) }()
	signal := func() { // as package os/signal does
		select {
		case signals <- os.Interrupt:
		default:
		}
	}
	names := func() string {
		var all []string
		placed, err := svc.Placements(t.Context())
		if err != nil {
			t.Error(err)
		}
		for _, p := range placed {
			all = append(all, p.Flow.Name)
		}
		return strings.Join(all, " ")
	}
	for i := range 100 {
		write(fmt.Sprintf("backend: sim\nflows: [{name: f%d, match: any}]\n", i))
		signal()
	}
	lab.Eventually(t, "the last file", func() bool { return names() == "f99 hand" })
	for _, bad := range []struct{ text, logged string }{
		{"backend: sim\nflows: [{name: a, match: tcp dprt 1}]\n", `level=ERROR msg="reloading: the instance counts as before" instance=test file=f.yaml line=2 column=30 err=.*dprt.* try="did you mean`},
		{"backend: sim\nmirror: {path: /run/x.mirror}\nflows: [{name: a, match: any}]\n", `level=ERROR msg="reloading: the instance counts as before" instance=test err="setting 1 flows: needs a restart: mirror.path`},
	} {
		write(bad.text)
		signal()
		lab.Eventually(t, bad.logged, func() bool { return regexp.MustCompile(bad.logged).MatchString(log.String()) })
		if got := names(); got != "f99 hand" {
			t.Errorf("after %q the flows are %s", bad.text, got)
		}
	}
	lab.Eventually(t, "the end of the last reload", func() bool { return strings.HasSuffix(told.String(), "counts as before it\n") })
	end()
	<-done
	if !regexp.MustCompile(`^(RELOADING=1\nMONOTONIC_USEC=[1-9]\d+\nREADY=1\nSTATUS=[^\n]+\n)+$`).MatchString(told.String()) {
		t.Errorf("the service manager was told\n%s", told.String())
	}
	t.Logf("%d reloads at 102 signals", strings.Count(told.String(), "RELOADING"))
}

func TestDifferencePrintsAsTextAndSummary(t *testing.T) {
	d := dataplane.Difference{
		Settings: []dataplane.FieldChange{{Field: "poll.period", From: "10ms", To: "1ms"}}, Added: []string{"first"}, Removed: []string{"old"},
		Renamed: []dataplane.Rename{{From: "web", To: "front"}}, Unchanged: 1234,
		Changed: []dataplane.FlowChange{{Name: "dns", Fields: []dataplane.FieldChange{{Field: "action", From: "count", To: "drop"}}}},
	}
	for i := range 13 {
		c := dataplane.FlowChange{Name: fmt.Sprint("f", i), Fields: []dataplane.FieldChange{{Field: "order", To: "behind first"}}}
		if i < 2 {
			c.Fields[0].To = "behind dns"
		}
		d.Changed = append(d.Changed, c)
	}
	const want = "~ setting poll.period: 10ms -> 1ms\n~ dns: count -> drop\n~ f0: behind dns\n~ f1: behind dns\n+ first\n~ front: was web\n- old\n~ 11 flows: behind first\n"
	if got := Text(d); got != want {
		t.Errorf("text\n%swant\n%s", got, want)
	}
	if got, want := Summary(d), "1 setting changed, 1 flow added, 15 flows changed, 1 flow removed, 1,234 flows unchanged"; got != want {
		t.Errorf("summary %q, want %q", got, want)
	}
	var out bytes.Buffer
	var read Changes
	if err := JSON(&out, "edge", true, d); err != nil || json.Unmarshal(out.Bytes(), &read) != nil || len(read.Changed) != 14 || !read.DryRun || read.Renamed[0].To != "front" {
		t.Errorf("JSON %s, %v", out.String(), err)
	}
	out.Reset()
	if err := JSON(&out, "edge", false, dataplane.Difference{}); err != nil || strings.Contains(strings.Replace(out.String(), `"cost":null`, "", 1), "null") {
		t.Errorf("JSON of no change: %s, %v", out.String(), err)
	}
}
