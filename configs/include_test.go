//go:build unix

package configs_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/configs"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/lab/golden"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// write makes files below a new directory, and returns the directory.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Fragments add flows, queue pairs and interfaces, in the order of their names.
func TestInclude(t *testing.T) {
	dir := write(t, map[string]string{
		"main.yaml":         "include: [conf.d, more/one.yml]\ninterfaces: [eth0]\nflows: [{name: first, match: any}]\n",
		"conf.d/20.yaml":    "flows: [{name: c, match: any}]\n",
		"conf.d/10.yaml":    "interfaces: [{name: wlan*, optional: true}]\nflows:\n  - {name: a, match: any, interface: wlan0}\n  - {name: b, match: any}\n",
		"conf.d/9.yml":      "not: read",
		"conf.d/.30.yaml":   "not: read",
		"conf.d/30.yaml~":   "not: read",
		"conf.d/empty.yaml": "",
		"more/one.yml":      "queue_pairs: [{name: q, device: rxe0, counters: [{name: k, operations: [send]}]}]\n",
	})
	cfg, err := configs.Load(filepath.Join(dir, "main.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range cfg.Flows {
		names = append(names, f.Name)
	}
	if got := strings.Join(names, " "); got != "first a b c" {
		t.Errorf("flows %s", got)
	}
	if len(cfg.Interfaces) != 2 || cfg.Interfaces[1].Name != "wlan*" || len(cfg.QueuePairs) != 1 {
		t.Errorf("%+v, %+v", cfg.Interfaces, cfg.QueuePairs)
	}
}

// A mistake names the fragment, its line and its column, and a flow that is defined in two of them names both.
func TestIncludeMistakes(t *testing.T) {
	dir := write(t, map[string]string{
		"main.yaml":     "include: conf.d\ninterfaces: [eth0]\nflows:\n  - {name: web, match: tcp dport 80}\n  - {name: pin, match: tcp, interface: eth3}\n",
		"conf.d/a.yaml": "poll: {period: 1s}\nflows:\n  - {name: web, match: udp}\n  - {name: dns, match: udp dport 53}\ninterfaces: [eth0, eth1]\n",
		"conf.d/b.yaml": "flows:\n  - {name: dns, match: udp dprt 53}\n  - {name: dns, match: any}\n  - {name: ok, match: any, interface: eth1}\n",
		"conf.d/c.yaml": "include: ../main.yaml\nflows: {}\n",
		"conf.d/d.yaml": "flows:\n\t- {}\n",
		"conf.d/e.yaml": "queue_pairs: [{name: q, device: rxe0, counters: [{name: web, operations: [send]}]}]\n",
		"conf.d/f.yaml": "queue_pairs: [{name: q, device: rxe0, counters: [{name: k, operations: [send]}]}]\n",
	})
	_, err := configs.Load(filepath.Join(dir, "main.yaml"))
	if !errors.Is(err, dataplane.ErrInvalid) {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/bad/include.txt", strings.ReplaceAll(err.Error(), dir+"/", "")+"\n", *update)
	if _, err := configs.Parse("text", []byte("include: x.yaml\nbackend: sim\n")); err == nil || !strings.Contains(err.Error(), "text:1:10") {
		t.Errorf("a text that includes: %v", err)
	}
}

// Files that are no fragments end in an error at the place of the include, and nothing is waited for.
func TestIncludeRefuses(t *testing.T) {
	for _, c := range []struct{ include, says string }{
		{"absent.yaml", "no such file"}, {"''", "the path is empty"}, {"{a: b}", "is a list"},
		{"fifo", "neither a regular file nor a directory"}, {"fifos", "p.yaml: it is neither"}, {"/dev/zero", "neither a regular file"},
		{"link", "neither a regular file"}, {"main.yaml", "includes itself"}, {"same", "includes itself"}, {".", "includes itself"},
		{"[a.yaml, a.yaml]", "included already"}, {"[a.yaml, twin.yaml]", "included already"}, {"loop", "too many levels"},
		{"/proc/self/mem", "input/output error"}, {"dir", "neither a regular file"},
	} {
		t.Run(c.include, func(t *testing.T) {
			dir := write(t, map[string]string{"main.yaml": "backend: sim\ninclude: " + c.include + "\n", "a.yaml": "", "fifos/a.yaml": "", "dir/d.yaml/x": ""})
			for link, target := range map[string]string{"link": "/dev/zero", "same": "main.yaml", "twin.yaml": "a.yaml", "loop": "loop"} {
				if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644), unix.Mkfifo(filepath.Join(dir, "fifos/p.yaml"), 0o644)); err != nil {
				t.Fatal(err)
			}
			_, err := configs.Load(filepath.Join(dir, "main.yaml"))
			var bad *configs.Error
			if !errors.As(err, &bad) || bad.Problems[0].Line != 2 || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want an error on line 2 that says %q", err, c.says)
			}
		})
	}
}

// Root includes no file that another user could have written, and a file of the user who owns the main file.
func TestIncludeTrusts(t *testing.T) {
	need.Root(t)
	for _, c := range []struct {
		name              string
		main, dir, file   int // owners
		mode              os.FileMode
		dirMode, mainMode os.FileMode
		says              string
	}{
		{"root's", 0, 0, 0, 0o644, 0o755, 0o644, ""},
		{"the owner's", 1234, 1234, 1234, 0o644, 0o755, 0o644, ""},
		{"another's file", 0, 0, 1234, 0o644, 0o755, 0o644, "belongs to user 1234"},
		{"another's directory", 0, 1234, 0, 0o644, 0o755, 0o644, "belongs to user 1234"},
		{"writable file", 0, 0, 0, 0o646, 0o755, 0o644, "can be written by others"},
		{"writable directory", 0, 0, 0, 0o644, 0o777, 0o644, "can be written by others"},
		{"a main file that others write", 1234, 1234, 1234, 0o644, 0o755, 0o666, "belongs to user 1234"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := write(t, map[string]string{"main.yaml": "backend: sim\ninclude: conf.d\n", "conf.d/a.yaml": "flows: [{name: a, match: any}]\n"})
			at := func(name string) string { return filepath.Join(dir, name) }
			err := errors.Join(os.Chown(at("main.yaml"), c.main, -1), os.Chown(at("conf.d"), c.dir, -1), os.Chown(at("conf.d/a.yaml"), c.file, -1),
				os.Chmod(at("conf.d"), c.dirMode), os.Chmod(at("conf.d/a.yaml"), c.mode), os.Chmod(at("main.yaml"), c.mainMode))
			if err != nil {
				t.Fatal(err)
			}
			cfg, err := configs.Load(at("main.yaml"))
			switch {
			case c.says == "" && (err != nil || len(cfg.Flows) != 1):
				t.Errorf("%v, %v", cfg.Flows, err)
			case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
				t.Errorf("%v, want an error that says %q", err, c.says)
			}
		})
	}
}

// A large set over many fragments is read whole.
func TestIncludeMany(t *testing.T) {
	const files, each = 65, 1000
	all := map[string]string{"main.yaml": "backend: sim\ninclude: conf.d\n"}
	for i := range files {
		var b strings.Builder
		b.WriteString("flows:\n")
		for j := range each {
			fmt.Fprintf(&b, "  - {name: f%d.%d, match: ipv4 dst 10.%d.%d.%d}\n", i, j, i, j/250, j%250)
		}
		all[fmt.Sprintf("conf.d/%03d.yaml", i)] = b.String()
	}
	cfg, err := configs.Load(filepath.Join(write(t, all), "main.yaml"))
	if err != nil || len(cfg.Flows) != files*each || cfg.Flows[each].Name != "f1.0" {
		t.Fatalf("%d flows, %v", len(cfg.Flows), err)
	}
}
