package cli

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/flowtally/flowtally/cmd/internal/usage"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/plugintest"
	"github.com/flowtally/flowtally/plugin"
)

// controlCommands has a command line for each command that asks a running instance and ends.
var controlCommands = map[string]string{
	"flowtally flows list":          "flows list",
	"flowtally flows add":           "flows add web any",
	"flowtally flows remove":        "flows remove web",
	"flowtally queue-pairs list":    "queue-pairs list",
	"flowtally queue-pairs connect": "queue-pairs connect near",
	"flowtally queue-pairs reserve": "queue-pairs reserve words",
	"flowtally queue-pairs release": "queue-pairs release words",
	"flowtally queue-pairs post":    "queue-pairs post near send",
	"flowtally explain":             "explain tcp dport 443",
	"flowtally replay":              "replay -",
	"flowtally apply":               "apply",
}

// silent is an instance whose plugin is stopped. Its host replies only to Info.
type silent struct{ dataplane.Service }

func (silent) Placements(ctx context.Context, _ ...string) ([]dataplane.Placement, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (silent) AddFlows(ctx context.Context, _ ...flow.Flow) ([]dataplane.Placement, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// In some cases the host does not reply, in others its plugin does not.
func TestACommandSaysWhomItWaitsForAndGivesUp(t *testing.T) {
	dir := t.TempDir()
	stopped := filepath.Join(dir, "stopped.sock")
	l, err := net.Listen("unix", stopped) // a host that was stopped: the kernel connects, and nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	half := filepath.Join(dir, "half.sock")
	fake, err := plugintest.NewFake(t.Context(), dataplane.Config{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	control, err := plugin.ListenControl(half, nil)
	if err != nil {
		t.Fatal(err)
	}
	serve, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- control.Serve(serve, silent{fake}) }()
	t.Cleanup(func() { stop(); <-served })
	waits := func(name, line, whom string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The --timeout of queue-pairs post begins with the posting, and selftest has none.
			if name != "flowtally queue-pairs post" && name != "flowtally selftest" {
				var talk bytes.Buffer
				code := Main(t.Context(), strings.NewReader(""), io.Discard, &talk, append(strings.Fields(line), "--timeout", "50ms"))
				if code != exitFailed || !strings.Contains(talk.String(), " has not answered within 50ms: ") ||
					!strings.Contains(talk.String(), "try: a longer --timeout; a plugin that stands still for 30s is started again") {
					t.Errorf("%s gave up with code %d and\n%s", line, code, talk.String())
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			said, say := io.Pipe()
			ended := make(chan int, 1)
			go func() { ended <- Main(ctx, strings.NewReader(""), io.Discard, say, strings.Fields(line)) }()
			var first string
			for in := bufio.NewScanner(said); !strings.HasPrefix(first, "flowtally: ") && in.Scan(); {
				first = in.Text() // after the plan of selftest
			}
			if !regexp.MustCompile("^flowtally: waiting for " + whom + "$").MatchString(first) {
				t.Errorf("%s said %q", line, first)
			}
			cancel()
			said.Close()
			if code := <-ended; code == exitOK {
				t.Errorf("%s, interrupted: code 0", line)
			}
		})
	}
	for command, line := range controlCommands {
		waits(command, line+" --socket "+stopped, "the instance at "+stopped)
	}
	waits("flowtally selftest", "selftest --interface lo --yes --socket "+stopped, "the instance at "+stopped)
	for _, line := range []string{"flows list", "flows add web any", "explain tcp"} {
		waits(line, line+" --socket "+half, "instance default, process [0-9]+")
	}
}

// Each command with --socket is a control command, except for a few that limit their waiting in other ways.
func TestEachControlCommandHasATimeout(t *testing.T) {
	others := []string{"flowtally run", "flowtally export", "flowtally selftest"}
	var r root
	parser, err := newParser(&r, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	err = kong.Visit(parser.Model.Node, func(v kong.Visitable, next kong.Next) error {
		node, ok := v.(*kong.Node)
		if !ok || len(node.Children) > 0 {
			return next(nil)
		}
		has := func(flag string) bool {
			return slices.ContainsFunc(node.Flags, func(f *kong.Flag) bool { return f.Name == flag })
		}
		path := usage.CommandPath(node)
		if _, known := controlCommands[path]; has("socket") && !slices.Contains(others, path) && (!known || !has("timeout")) {
			t.Errorf("%s: in the test %t, with --timeout %t", path, known, has("timeout"))
		}
		return next(nil)
	})
	if err != nil {
		t.Fatal(err)
	}
}
