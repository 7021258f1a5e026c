//go:build unix

package configs_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/configs"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// elements are the elements of a set as text.
func elements(cfg dataplane.Config, name string) string {
	for _, s := range cfg.Sets {
		if s.Name == name {
			out := make([]string, len(s.Elements))
			for i, p := range s.Elements {
				out[i] = p.String()
			}
			return strings.Join(out, " ")
		}
	}
	return "no such set"
}

func TestSetsHaveTheElementsOfTheirFilesAndTheirOwn(t *testing.T) {
	dir := write(t, map[string]string{
		"main.yaml": `backend: sim
flows:
  - {name: blocked, match: ipv4 src @blocklist, action: drop}
  - {name: mapped, match: {ipv6: {src: "@blocklist", dst: "!= @own"}}}
include: conf.d
sets:
  blocklist: {type: address, file: lists/block.txt, elements: [10.0.0.0/8, 2001:db8::/32, 10.0.0.5-10.0.0.9]}
  own:
    elements:
      - 192.0.2.1
  later:
  nft: {file: lists/nft}
  ipset: {file: ` + "lists/ipset" + `}
`,
		"conf.d/a.yaml":   "flows:\n  - {name: included, match: ipv4 dst @ipset}\n",
		"lists/block.txt": "# a list\n198.51.100.7 ; one\n10.1.0.0/16\n2001:db8:1::1\n198.51.100.7\n10.0.0.0/8\n",
		"lists/nft":       "elements = { ::1 timeout 1h, 192.0.2.9 }\n",
		"lists/ipset":     "create a hash:net\nadd a 192.0.2.0/24 timeout 60\nadd a 192.0.3.0/24\n",
	})
	got, err := configs.LoadNoted(filepath.Join(dir, "main.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"blocklist": "10.0.0.0/8 198.51.100.7/32 2001:db8::/32",
		"own":       "192.0.2.1/32",
		"later":     "",
		"nft":       "192.0.2.9/32 ::1/128",
		"ipset":     "192.0.2.0/24 192.0.3.0/24",
	} {
		if text := elements(got.Config, name); text != want {
			t.Errorf("set %s has %q, want %q", name, text, want)
		}
	}
	if len(got.Config.Flows) != 3 {
		t.Errorf("flows %v", got.Config.Flows)
	}

	var notes []string
	for _, n := range got.Notes {
		if n.Suggestion == "" {
			t.Errorf("%+v has no next step", n)
		}
		notes = append(notes, n.Object+": "+strings.ReplaceAll(n.Text, dir+"/", ""))
	}
	slices.Sort(notes)
	want := []string{
		`set "blocklist": left out 7 of 10 elements, which others contain: 10.0.0.0/8 twice, 10.0.0.5 in 10.0.0.0/8, 10.0.0.6/31 in 10.0.0.0/8 and 4 more`,
		`set "ipset": elements with a timeout in lists/ipset: 1; no timeout is kept`,
		`set "nft": elements with a timeout in lists/nft: 1; no timeout is kept`,
	}
	if !slices.Equal(notes, want) {
		t.Errorf("notes\n%s\nwant\n%s", strings.Join(notes, "\n"), strings.Join(want, "\n"))
	}
	for _, file := range []string{"block.txt", "nft", "ipset"} {
		if !slices.Contains(got.Paths, filepath.Join(dir, "lists", file)) {
			t.Errorf("%s is not watched: %v", file, got.Paths)
		}
	}
	if !slices.Contains(got.Paths, filepath.Join(dir, "conf.d", "a.yaml")) {
		t.Errorf("the included file is not watched: %v", got.Paths)
	}

	// What is written has the elements themselves, and needs no file.
	text, err := configs.Marshal(got.Config)
	if err != nil {
		t.Fatal(err)
	}
	again, err := configs.Parse("again", text)
	if err != nil || elements(again, "blocklist") != elements(got.Config, "blocklist") || len(again.Sets) != 5 {
		t.Errorf("written as\n%s\nand read as %v, %v", text, again.Sets, err)
	}
}

func TestMistakesInSetsHaveTheirPlaces(t *testing.T) {
	for _, c := range []struct {
		name, sets string   // behind "backend: sim", from line 2 on
		want       []string // "file:line:col", then parts of the text, split by |
	}{
		{"no mapping", "sets: [a]\n", []string{"main.yaml:2:7|sets is a mapping of fields"}},
		{"a set of no mapping", "sets: {a: [10.0.0.1]}\n", []string{"main.yaml:2:11|sets.a is a mapping of fields, not a list"}},
		{"a name", "sets:\n  a/b: {}\n", []string{`main.yaml:3:3|sets: the name "a/b" holds '/'|letters, digits and . _ -`}},
		{"twice", "sets:\n  a: {}\n  a: {}\n", []string{`main.yaml:4:3|"a" is given twice`}},
		{"another type", "sets:\n  a: {type: port}\n", []string{`main.yaml:3:13|sets.a.type: "port" is not one of its words|use address`}},
		{"an unknown field", "sets:\n  a: {element: [::1]}\n", []string{`main.yaml:3:7|sets.a has no field "element"|did you mean "elements"?`}},
		{"elements", "sets:\n  a: {elements: [10.0.0.1/8, ::1, x]}\n", []string{
			`main.yaml:3:18|sets.a.elements[0]: "10.0.0.1/8" has bits behind the first 8|did you mean 10.0.0.0/8?`, `main.yaml:3:35|sets.a.elements[2]: "x" is no address`,
		}},
		{"an element of no value", "sets:\n  a: {elements: [[10.0.0.1]]}\n", []string{"main.yaml:3:18|elements[0] is one value"}},
		{"no path", "sets:\n  a: {file: ''}\n", []string{"main.yaml:3:13|the path is empty"}},
		{"no file", "sets:\n  a: {file: absent}\n", []string{"main.yaml:3:13|no such file|relative to the directory of this file"}},
		{"a directory", "sets:\n  a: {file: dir}\n", []string{"main.yaml:3:13|it is no regular file|name a regular file"}},
		{"a FIFO", "sets:\n  a: {file: fifo}\n", []string{"main.yaml:3:13|neither a regular file|name a regular file"}},
		{"a device", "sets:\n  a: {file: /dev/zero}\n", []string{"main.yaml:3:13|neither a regular file"}},
		{"a link to a device", "sets:\n  a: {file: link}\n", []string{"main.yaml:3:13|neither a regular file"}},
		{"a file of the kernel", "sets:\n  a: {file: /proc/self/environ}\n", []string{"main.yaml:3:13|a file that the kernel makes"}},
		{"a huge file", "sets:\n  a: {file: huge}\n", []string{"main.yaml:3:13|more than 256 MiB"}},
		{"a mistake in a file", "sets:\n  a: {file: wrong}\n", []string{`wrong:2:1|"10.0.0.x" is no address|a line has`, `wrong:4:10|"10.0.0.3" stands behind an element`}},
		{"a file of something else", "sets:\n  a: {file: secret}\n", []string{"secret:1:1|no file of a set, so no line of it is shown|nft list set"}},
		{"a ruleset in the place of a set", "sets:\n  a: {file: ruleset}\n", []string{`ruleset:2:1|"chain" is no part of a set|nft list set`}},
		{"a set that is not there", "sets:\n  block: {}\nflows:\n  - {name: a, match: ipv4 src !=@blok tcp}\n  - {name: b, match: {ipv6: {dst: '@nosuch'}}}\n", []string{
			`main.yaml:5:31|flows[0].match: "!=@blok": there is no set @blok|did you mean @block?`, `main.yaml:6:22|flows[1].match: there is no set @nosuch|define it under sets`,
		}},
		{"no sets at all", "flows:\n  - {name: a, match: ipv4 src @block}\n", []string{`main.yaml:3:31|there is no set @block|define it under sets`}},
		{"in an included file", "sets:\n  a: {}\ninclude: conf.yaml\n", []string{
			`conf.yaml:1:1|has no field "sets"|other settings are in`, `conf.yaml:3:31|there is no set @b`,
		}},
		{"a name that is not quoted", "flows:\n  - name: a\n    match: {ipv4: {src: @block}}\n", []string{`main.yaml:4:25|quote a value that begins with @`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := write(t, map[string]string{
				"main.yaml": "backend: sim\n" + c.sets, "dir/x": "", "wrong": "10.0.0.1\n10.0.0.x\n\n10.0.0.2 10.0.0.3\n", "secret": "-----BEGIN PRIVATE KEY-----\nsecret\n",
				"ruleset":   "table ip f {\nchain in {\n}\n}\n",
				"conf.yaml": "sets: {b: {}}\nflows:\n  - {name: a, match: ipv4 src @b}\n", "huge": "",
			})
			err := errors.Join(unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644), os.Symlink("/dev/zero", filepath.Join(dir, "link")),
				os.Truncate(filepath.Join(dir, "huge"), 256<<20+1))
			if err != nil {
				t.Fatal(err)
			}
			_, err = configs.Load(filepath.Join(dir, "main.yaml"))
			var bad *configs.Error
			if !errors.As(err, &bad) || !errors.Is(err, dataplane.ErrInvalid) {
				t.Fatalf("%v, want mistakes", err)
			}
			if len(bad.Problems) != len(c.want) {
				t.Fatalf("%d mistakes, want %d:\n%v", len(bad.Problems), len(c.want), err)
			}
			for i, p := range bad.Problems {
				parts := strings.Split(c.want[i], "|")
				if at := fmt.Sprintf("%s:%d:%d", filepath.Base(p.File), p.Line, p.Col); at != parts[0] {
					t.Errorf("mistake %d is at %s, want %s", i, at, parts[0])
				}
				for _, part := range parts[1:] {
					if !strings.Contains(p.Msg+"; "+p.Suggestion, part) {
						t.Errorf("%q; %q does not say %q", p.Msg, p.Suggestion, part)
					}
				}
			}
			if strings.Contains(err.Error(), "PRIVATE KEY") {
				t.Errorf("the error shows a secret: %v", err)
			}
		})
	}
}

func TestASetOfTextHasNoFile(t *testing.T) {
	_, err := configs.Parse("text", []byte("backend: sim\nsets:\n  a: {file: x}\n"))
	if err == nil || !strings.Contains(err.Error(), "text:3:13") || !strings.Contains(err.Error(), "write the elements out") {
		t.Error(err)
	}
}

// Flows alone are for an instance, which has the sets.
func TestFlowsAloneMayNameAnySet(t *testing.T) {
	flows, err := configs.ParseFlows("flows", []byte("- {name: a, match: ipv4 src @any.thing}\n"))
	if err != nil || len(flows) != 1 || flows[0].Match.String() != "ipv4 src @any.thing" {
		t.Errorf("%v, %v", flows, err)
	}
}

// Root reads no file that another user could have written, and shows no file that the author of the configuration cannot read.
func TestRootReadsNoSetThatAThirdUserCouldWrite(t *testing.T) {
	need.Root(t)
	const author, other = 4711, 4712
	for _, c := range []struct {
		name  string
		owner int
		mode  os.FileMode
		says  string
	}{
		{"the author's", author, 0o600, ""},
		{"root's", 0, 0o644, ""},
		{"of a third user", other, 0o644, "it is not read"},
		{"that all can write", author, 0o666, "it is not read"},
		{"that the author cannot read", 0, 0o600, "it is not read"},
	} {
		dir := write(t, map[string]string{"main.yaml": "backend: sim\nsets:\n  a: {file: list}\n", "list": "10.0.0.1\n"})
		list := filepath.Join(dir, "list")
		if err := errors.Join(os.Chown(dir, author, -1), os.Chown(filepath.Join(dir, "main.yaml"), author, -1), os.Chown(list, c.owner, 0), os.Chmod(list, c.mode)); err != nil {
			t.Fatal(err)
		}
		cfg, err := configs.Load(filepath.Join(dir, "main.yaml"))
		switch {
		case c.says == "" && (err != nil || elements(cfg, "a") != "10.0.0.1/32"):
			t.Errorf("a file %s: %v, %v", c.name, cfg.Sets, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "10.0.0.1")):
			t.Errorf("a file %s: %v", c.name, err)
		}
	}
}

// A file that changes while it is read cannot make a set of more elements than there may be.
func TestASetHasABound(t *testing.T) {
	var b strings.Builder
	for i := range dataplane.MostElements + 1 {
		b.WriteString(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}).String() + "\n")
	}
	dir := write(t, map[string]string{"main.yaml": "backend: sim\nsets:\n  a: {file: list}\n", "list": b.String()})
	_, err := configs.Load(filepath.Join(dir, "main.yaml"))
	if err == nil || !strings.Contains(err.Error(), "list:1048577:1") || !strings.Contains(err.Error(), "more than 1048576") {
		t.Errorf("%.300v", err)
	}
}

// The elements that others contain are neither kept nor free of charge: 64 sets could name one file of a million equal lines.
func TestASetKeepsItsOwnElementsAlone(t *testing.T) {
	const four = "backend: sim\nsets:\n  a: {file: list}\n  b: {file: list}\n  c: {file: list}\n  d: {file: list}\n"
	dir := write(t, map[string]string{
		"four.yaml": four,
		"five.yaml": four + "  e: {file: list}\n",
		"list":      strings.Repeat("10.0.0.0/8\n", dataplane.MostElements),
	})
	cfg, err := configs.Load(filepath.Join(dir, "four.yaml"))
	if err != nil || len(cfg.Sets) != 4 {
		t.Fatalf("%d sets, %v", len(cfg.Sets), err)
	}
	for _, s := range cfg.Sets {
		if n := cap(s.Elements); n > 16 {
			t.Errorf("set %s has one element and memory for %d", s.Name, n)
		}
	}
	if _, err := configs.Load(filepath.Join(dir, "five.yaml")); err == nil || !strings.Contains(err.Error(), "more than 0") {
		t.Errorf("a fifth set: %v", err)
	}
}
