package cli

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

//go:generate go test -run TestTroubleshootingListsEachSentinelAndNextStep -update

// sentinels lists the packages whose errors a user or an embedder may get.
var sentinels = []string{"dataplane", "dataplane/flow", "shm", "plugin", "probe", "xdp", "ibv", "ibv/flexio", "ibv/ibvtest", "dataplane/engine/backend"}

// steps has the next steps of sentinels that no command prints by itself.
var steps = map[string]string{
	"dataplane.ErrInvalid":  "correct the flow or the configuration as the text says",
	"flow.ErrInvalid":       "correct the flow as the text says; docs/flows.md defines the fields",
	"shm.ErrExists":         "choose another name, or remove the counter first",
	"shm.ErrInvalid":        "correct the argument as the text says",
	"shm.ErrClosed":         "open the reader or the writer again",
	"shm.ErrNoDevice":       "read the ordinary value: Counter.Load",
	"shm.ErrNoLive":         "set mirror.live_mode, or read the ordinary value: Counter.Load",
	"shm.ErrStale":          "load again; a reader by name opens the next file itself",
	"shm.ErrCompletion":     "flowtally queue-pairs list # has the reason",
	"shm.ErrNotSupported":   "write on Linux; reading works on other systems",
	"xdp.ErrClosed":         "open the rule set again",
	"xdp.ErrInUse":          "stop the other process, or use another directory of pins",
	"xdp.ErrFull":           "raise xdp.max_flows, or remove flows; of a set: close another one, or join its elements",
	"xdp.ErrCostly":         "narrow the rules of the error, remove some, or raise Options.WorstCost",
	"xdp.ErrDense":          "remove rules that match the same packets, or narrow them",
	"xdp.ErrIncompatible":   "flowtally clean --pin-dir DIR, of the directory that the text names: that gives up its counts",
	"xdp.ErrBusy":           "detach the other program with the command in the text",
	"xdp.ErrPermission":     "run as root, or give the process the capability that the text names",
	"xdp.ErrDetached":       "restart the instance when its flows are right again",
	"xdp.ErrNotFound":       "list the rules and counters first",
	"xdp.ErrExists":         "remove the old rule or counter first",
	"xdp.ErrInvalid":        "correct the rule as the text says",
	"xdp.ErrTorn":           "read again",
	"xdp.ErrUndone":         "do as the rest of the text says; the other rules may lack packets from meanwhile",
	"ibv.ErrBusy":           "close the objects that use it first",
	"ibv.ErrClosed":         "open the object again",
	"ibv.ErrDeviceGone":     "look at rdma link and dmesg; the instance goes on by itself when the device is back",
	"ibv.ErrUntrusted":      "give the library and its directories to root, as the text says",
	"ibv.ErrNoDevice":       "rdma link lists the devices",
	"flexio.ErrShort":       "pass the whole structure",
	"flexio.ErrAttr":        "correct the attribute as the text says",
	"flexio.ErrRing":        "use another source: flowtally falls back to ibv_poll_cq",
	"flexio.ErrCorrupt":     "report the device and its driver",
	"flexio.ErrMissed":      "call Count more often, or make the queue deeper",
	"ibvtest.ErrNoCompiler": "install gcc",
	"backend.ErrDeviceLost": "look at rdma link and dmesg; flows move to XDP meanwhile",
	"backend.ErrNoDevice":   "rdma link lists the devices and their netdevs",
	"backend.ErrUnread":     "look for firmware errors in dmesg",
	"backend.ErrUndone":     "do as the rest of the text says; the flows that may lack packets have a discontinuity",
}

// docs/troubleshooting.md must have every sentinel, with the cause from its comment and its next step, and every next
// step added by a command. With -update the test writes the document.
func TestTroubleshootingListsEachSentinelAndNextStep(t *testing.T) {
	const path, mark = "../../../docs/troubleshooting.md", "<!-- Generated below"
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, below, ok := strings.Cut(string(old), mark)
	first, _, _ := strings.Cut(below, "\n")
	if !ok {
		t.Fatalf("%s has no line %q", path, mark)
	}
	var b strings.Builder
	b.WriteString(head + mark + first + "\n")
	try := hintsBySentinel(t)
	b.WriteString("\n## Sentinels\n\nAn error of a program satisfies `errors.Is` with the sentinel, also across the plugin's socket.\n\n" +
		"| text | sentinel | cause | next step |\n| --- | --- | --- | --- |\n")
	n := 0
	for _, dir := range sentinels {
		for _, s := range sentinelsOf(t, dir) {
			step := (*commandLine)(nil).complete(try[s.name])
			if step == "" {
				step = steps[s.name]
			} else if steps[s.name] != "" {
				t.Errorf("%s has a hint, and a step in this test", s.name)
			}
			if step == "" || s.cause == "" {
				t.Errorf("%s has no comment, or no next step", s.name)
			}
			n++
			fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s |\n", s.text, s.name, cell(s.cause), cell(step))
		}
	}
	if n < 50 {
		t.Errorf("only %d sentinels were found", n)
	}
	b.WriteString("\n## Next steps of commands\n\nA command that knows more than the sentinel adds a next step of its own. `…` stands for a name or a number.\n\n" +
		"| in | message | next step |\n| --- | --- | --- |\n")
	for _, h := range ownHints(t) {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", h[0], cell(h[1]), cell((*commandLine)(nil).complete(h[2])))
	}
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(old) != b.String() {
		t.Error("docs/troubleshooting.md is stale: make generate")
	}
}

// cell is a text in a cell of a table.
func cell(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", "\\|")
}

type sentinel struct{ name, text, cause string }

func parseDir(t *testing.T, dir string) (files []*ast.File) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

// sentinelsOf returns the exported errors of a package, with their comments.
func sentinelsOf(t *testing.T, dir string) (all []sentinel) {
	t.Helper()
	texts := make(map[string]string)
	for _, f := range parseDir(t, filepath.Join("../../..", dir)) {
		for _, d := range f.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.VAR {
				continue
			}
			for _, s := range decl.Specs {
				spec := s.(*ast.ValueSpec)
				name := spec.Names[0].Name
				if !regexp.MustCompile(`^Err[A-Z]`).MatchString(name) || len(spec.Values) == 0 {
					continue
				}
				doc := spec.Doc.Text()
				if doc == "" {
					doc = decl.Doc.Text()
				}
				texts[name] = message(spec.Values[0], texts)
				cause := strings.TrimSpace(strings.TrimPrefix(strings.TrimPrefix(doc, name+": "), name+" means that "))
				if cause != "" {
					cause = strings.ToUpper(cause[:1]) + cause[1:]
				}
				all = append(all, sentinel{f.Name.Name + "." + name, texts[name], cause})
			}
		}
	}
	return all
}

var verb = regexp.MustCompile(`%[-+# 0-9.]*[a-zA-Z]`)

// message is the text of errors.New or fmt.Errorf, "…" for each argument but a sentinel of texts, or "" of another expression.
func message(e ast.Expr, texts map[string]string) string {
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) == 0 {
		return ""
	}
	lit, ok := call.Args[0].(*ast.BasicLit)
	if !ok {
		return ""
	}
	text, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	i := 0
	return verb.ReplaceAllStringFunc(text, func(string) string {
		i++
		if i < len(call.Args) {
			if id, ok := call.Args[i].(*ast.Ident); ok && texts[id.Name] != "" {
				return texts[id.Name]
			}
		}
		return "…"
	})
}

// hintsBySentinel parses the table in hints.go, because only the source has the names of the sentinels.
func hintsBySentinel(t *testing.T) map[string]string {
	t.Helper()
	found := make(map[string]string)
	for _, f := range parseDir(t, ".") {
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || spec.Names[0].Name != "hints" {
				return true
			}
			for _, e := range spec.Values[0].(*ast.CompositeLit).Elts {
				row := e.(*ast.CompositeLit).Elts
				sel := row[0].(*ast.SelectorExpr)
				text, err := strconv.Unquote(row[1].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				found[sel.X.(*ast.Ident).Name+"."+sel.Sel.Name] = text
			}
			return false
		})
	}
	if len(found) != len(hints) {
		t.Fatalf("%d hints were found of %d", len(found), len(hints))
	}
	return found
}

// ownHints parses the calls of withHint with a literal text. For each it returns the command, the message and the next
// step.
func ownHints(t *testing.T) (all [][3]string) {
	t.Helper()
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) < 2 {
				return true
			}
			if id, ok := call.Fun.(*ast.Ident); !ok || id.Name != "withHint" {
				return true
			}
			step := message(&ast.CallExpr{Args: call.Args[1:]}, nil)
			if step == "" || step == "…" {
				return true
			}
			text := message(call.Args[0], nil)
			if text == "" {
				text = "of the sentinel that it wraps"
			}
			command, _, _ := strings.Cut(strings.TrimSuffix(path, ".go"), "_")
			all = append(all, [3]string{command, text, step})
			return true
		})
	}
	if len(all) < 10 {
		t.Errorf("only %d calls of withHint were found", len(all))
	}
	return all
}
