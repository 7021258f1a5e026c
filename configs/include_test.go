//go:build unix

package configs_test

import (
	"encoding/binary"
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
	for _, passed := range []string{dir, filepath.Dir(dir)} { // by users other than the test's
		if err := os.Chmod(passed, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Fragments add flows, queue pairs and interfaces, in the order of their names.
func TestIncludedFilesAddFlowsInTheOrderOfTheirNames(t *testing.T) {
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
func TestMistakeInAnIncludedFileNamesItsFileAndLine(t *testing.T) {
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
func TestIncludeFailsAtItsPlaceOnWhatIsNoConfiguration(t *testing.T) {
	for _, c := range []struct{ include, says string }{
		{"absent.yaml", "no such file"}, {"''", "the path is empty"}, {"{a: b}", "is a list"},
		{"fifo", "neither a regular file nor a directory"}, {"fifos", "p.yaml: it is neither"}, {"/dev/zero", "neither a regular file"},
		{"link", "neither a regular file"}, {"main.yaml", "includes itself"}, {"same", "includes itself"}, {".", "includes itself"},
		{"[a.yaml, a.yaml]", "included already"}, {"[a.yaml, twin.yaml]", "included already"}, {"loop", "too many levels"},
		{"/proc/self/mem", "a file that the kernel makes"}, {"/proc/self/environ", "a file that the kernel makes"}, {"/sys/kernel/uevent_seqnum", "a file that the kernel makes"}, {"dir", "neither a regular file"},
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
func TestRootIncludesNoFileThatAThirdUserCouldWrite(t *testing.T) {
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

// Whoever wrote the main file learns nothing from an included file that he cannot read, whoever reads the configuration.
func TestIncludeShowsNothingThatItsAuthorCannotRead(t *testing.T) {
	need.Root(t)
	const secret = "flows:\n\t- secret\n"
	for _, c := range []struct {
		name         string
		owner, group int // of the fragment
		mode, dir    os.FileMode
		mainMode     os.FileMode
		path         string // to the fragment
		says         string
	}{
		{"his own", 1234, 0, 0o400, 0o755, 0o644, "conf.d/a.yaml", "- secret"},
		{"everybody's", 0, 0, 0o644, 0o755, 0o644, "conf.d/a.yaml", "- secret"},
		{"root's alone", 0, 0, 0o600, 0o755, 0o644, "conf.d/a.yaml", "(mode 0600) cannot be read by user 1234"},
		{"root's and a group's that is not known", 0, 42, 0o640, 0o755, 0o644, "conf.d/a.yaml", "cannot be read by user 1234"},
		{"everybody's but a group's", 0, 42, 0o604, 0o755, 0o644, "conf.d/a.yaml", "cannot be read by user 1234"},
		{"his own, which he cannot read", 1234, 0, 0o044, 0o755, 0o644, "conf.d/a.yaml", "cannot be read by user 1234"},
		{"in a directory that he cannot pass", 0, 0, 0o644, 0o700, 0o644, "conf.d/a.yaml", "conf.d (mode 0700) cannot be read by user 1234"},
		{"absent in a directory that he cannot pass", 0, 0, 0o644, 0o700, 0o644, "conf.d/absent", "conf.d (mode 0700) cannot be read by user 1234"},
		{"in a directory that he cannot list", 0, 0, 0o644, 0o711, 0o644, "conf.d", "conf.d (mode 0711) cannot be read by user 1234"},
		{"through a link", 0, 0, 0o600, 0o755, 0o644, "link", "cannot be read by user 1234"},
		{"through a link in the directory", 0, 0, 0o600, 0o755, 0o644, "links", "cannot be read by user 1234"},
		{"a group's, in a file that others wrote", 0, 0, 0o640, 0o755, 0o666, "conf.d/a.yaml", "cannot be read by every user"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := write(t, map[string]string{"main.yaml": "backend: sim\ninclude: " + c.path + "\n", "conf.d/a.yaml": secret, "links/x": ""})
			at := func(name string) string { return filepath.Join(dir, name) }
			err := errors.Join(os.Symlink("conf.d/a.yaml", at("link")), os.Symlink("../conf.d/a.yaml", at("links/a.yaml")),
				os.Chown(at("main.yaml"), 1234, 1234), os.Chmod(at("main.yaml"), c.mainMode),
				os.Chown(at("conf.d/a.yaml"), c.owner, c.group), os.Chmod(at("conf.d/a.yaml"), c.mode), os.Chmod(at("conf.d"), c.dir))
			if err != nil {
				t.Fatal(err)
			}
			_, err = configs.Load(at("main.yaml"))
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want an error that says %q", err, c.says)
			}
			if c.says != "- secret" && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error shows the file: %v", err)
			}
		})
	}
}

// A list decides beside the mode who reads a file: user 1234 is kept out of one that everybody else reads.
func TestIncludeFailsOnAccessControlLists(t *testing.T) {
	need.Root(t)
	dir := write(t, map[string]string{"main.yaml": "backend: sim\ninclude: a.yaml\n", "a.yaml": "flows: []\n"})
	list := []byte{2, 0, 0, 0}
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{0x01, 6, ^uint32(0)}, {0x02, 0, 1234}, {0x04, 4, ^uint32(0)}, {0x10, 4, ^uint32(0)}, {0x20, 4, ^uint32(0)}} {
		list = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(list, e.tag), e.perm), e.id)
	}
	if err := unix.Setxattr(filepath.Join(dir, "a.yaml"), "system.posix_acl_access", list, 0); errors.Is(err, unix.ENOTSUP) {
		need.Missing(t, "acl", "the filesystem has no access control lists")
	} else if err != nil {
		t.Fatal(err)
	}
	main := filepath.Join(dir, "main.yaml")
	if _, err := configs.Load(main); err != nil {
		t.Errorf("root's own: %v", err)
	}
	if err := os.Chown(main, 1234, 1234); err != nil {
		t.Fatal(err)
	}
	if _, err := configs.Load(main); err == nil || !strings.Contains(err.Error(), "access control list") {
		t.Errorf("%v, want an error that names the list", err)
	}
}

// A file of somebody else's may be named by mistake, or by another. No line and no word of it is shown.
func TestErrorsShowNoLineOfForeignFiles(t *testing.T) {
	for name, text := range map[string]string{
		"shadow":       "root:$6$secret:19000:0:99999:7:::\ndaemon:*:19000:0:99999:7:::\n",
		"a scalar":     "secret\n",
		"a list":       "- secret\n- [secret]\n",
		"YAML":         "apiVersion: v1\nusers:\n- user: {token: secret}\nsecret: x\n",
		"JSON":         "{\"auths\": {\"secret\": {}}}\n",
		"a broken one": "token: [secret\nother\n",
		"an anchor":    "secret: *secret\n",
		"a tab":        "key:\n\tsecret\n",
		"bytes":        "TOKEN=secret\x00HOME=/root\x00",
		"a key":        "-----BEGIN OPENSSH PRIVATE KEY-----\nsecret=\n-----END OPENSSH PRIVATE KEY-----\n",
		"two":          "secret: 1\n---\nsecret: 2\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := write(t, map[string]string{"main.yaml": "backend: sim\ninclude: f\n", "f": text})
			_, included := configs.Load(filepath.Join(dir, "main.yaml"))
			_, main := configs.Load(filepath.Join(dir, "f"))
			_, flows := configs.ParseFlows("f", []byte(text))
			for what, err := range map[string]error{"included": included, "the main file": main, "a list of flows": flows} {
				if err == nil || strings.Contains(err.Error(), "secret") {
					t.Errorf("%s: %v, want an error without a word of the file", what, err)
				}
			}
		})
	}
}

// Many fragments take no more memory than one: they share what a file may have beyond the proportion of its length.
func TestIncludeSharesTheBoundOfValues(t *testing.T) {
	all := map[string]string{"main.yaml": "backend: sim\ninclude: conf.d\n"}
	for i := range 2 {
		all[fmt.Sprintf("conf.d/%d.yaml", i)] = strings.Repeat("# ,,,,,,,,,\n", 2_500) + "flows: []\n"
	}
	_, err := configs.Load(filepath.Join(write(t, all), "main.yaml"))
	if err == nil || strings.Contains(err.Error(), "0.yaml:1:1: it has") || !strings.Contains(err.Error(), "1.yaml:1:1: it has 45004 values") {
		t.Errorf("%.500v, want the second file refused", err)
	}
}

// A large set over many fragments is read whole.
func TestManyIncludedFilesAreReadWhole(t *testing.T) {
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
