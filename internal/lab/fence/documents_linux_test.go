package fence

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// documents returns the paths of the README and of docs/*.md, below the root of the repository.
func documents(t *testing.T) (root string, paths []string) {
	t.Helper()
	root, err := filepath.Abs("../../..")
	check(t, err)
	paths, err = filepath.Glob(filepath.Join(root, "docs", "*.md"))
	check(t, err)
	if len(paths) < 10 {
		t.Fatalf("only %d documents were found", len(paths))
	}
	return root, append([]string{filepath.Join(root, "README.md")}, paths...)
}

// TestFencesSayHowTheyRun: each fence of a document has a known info string, and each command that is not
// run has a reason. -v prints the number of commands that run, and the reasons.
func TestFencesSayHowTheyRun(t *testing.T) {
	_, paths := documents(t)
	run, not := 0, 0
	for _, path := range paths {
		data, err := os.ReadFile(path)
		check(t, err)
		fences, errs := Parse(string(data))
		for _, err := range errs {
			t.Errorf("%s: %v", filepath.Base(path), err)
		}
		for _, f := range fences {
			if f.NotRun != "" {
				not++
				t.Logf("%s:%d is not run: %s", filepath.Base(path), f.Line, f.NotRun)
				continue
			}
			all, err := f.Commands()
			if err != nil {
				t.Errorf("%s: %v", filepath.Base(path), err)
			}
			run += len(all)
		}
	}
	t.Logf("%d commands run, %d fences are not run", run, not)
}

// TestDocumentsNameTheirReaders: the first sentence of each page of docs names its readers, and the index links to it.
func TestDocumentsNameTheirReaders(t *testing.T) {
	begin := regexp.MustCompile(`(?s)^(?:<!--.*?-->\n)?# [^\n]+\n\nThis page is for [a-z]`)
	root, paths := documents(t)
	index, err := os.ReadFile(filepath.Join(root, "docs", "README.md"))
	check(t, err)
	for _, path := range paths[1:] {
		data, err := os.ReadFile(path)
		check(t, err)
		if name := filepath.Base(path); name != "README.md" && !strings.Contains(string(index), "]("+name+")") {
			t.Errorf("docs/README.md does not link to %s", name)
		}
		if !begin.Match(data) {
			t.Errorf("%s does not begin with a title and \"This page is for …\"", filepath.Base(path))
		}
	}
}

// TestDocuments runs the fenced commands of each document, and compares the output that the document shows.
func TestDocuments(t *testing.T) {
	if testing.Short() {
		t.Skip("the long form runs every command of the documents")
	}
	need.Root(t)
	need.Cap(t, "net_admin", "sys_admin", "bpf")
	need.BPF(t)
	need.TCX(t)
	need.Netns(t)
	need.Tool(t, "bash", "setpriv", "make", "cc", "pkg-config", "python3")
	root, paths := documents(t)
	dir := programs(t, root)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		check(t, err)
		fences, _ := Parse(string(data)) // TestFencesSayHowTheyRun reports its mistakes
		if !slices.ContainsFunc(fences, Fence.Runs) {
			continue
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			s := newSession(t, root, dir)
			for _, f := range fences {
				if t.Failed() {
					return // the commands of a document build on one another
				}
				if f.Runs() {
					walk(t, s, root, filepath.Base(path), f)
				}
			}
		})
	}
}

// programs returns a directory of root's with the programs: those in $FLOWTALLY_BIN may be another user's,
// and root runs no plugin that another user can write.
func programs(t *testing.T, root string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "flowtally-fence-")
	check(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	making := exec.Command("make", "-C", root, "--no-print-directory", "build", "BIN="+dir)
	if bin := os.Getenv("FLOWTALLY_BIN"); bin != "" {
		making = exec.Command("cp", "-r", bin+"/.", dir)
	}
	if out, err := making.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", making.Args, err, out)
	}
	check(t, os.Chmod(dir, 0o755))
	return dir
}

// walk runs the commands of one fence, or writes its file.
func walk(t *testing.T, s *session, root, document string, f Fence) {
	t.Helper()
	if f.File != "" {
		// The shell writes it: only its namespace has the copy of the repository.
		text := filepath.Join(s.dir, "text")
		check(t, os.WriteFile(text, []byte(f.Text), 0o644))
		f.File = fmt.Sprintf("mkdir -p %s && cp %s %s", filepath.Dir(f.File), text, f.File)
		if code, _, both := s.run(Command{Text: f.File}, ""); code != 0 {
			t.Errorf("%s:%d: writing the file: %d\n%s", document, f.Line, code, both)
		}
		return
	}
	all, err := f.Commands()
	check(t, err)
	for i, c := range all {
		last := i == len(all)-1
		until := ""
		if last {
			until = f.Until
		}
		code, stdout, both := s.run(c, until)
		if fails := last && f.Fails; (code != 0) != fails {
			t.Errorf("%s:%d: %s\nended with %d, want failure: %t; its output:\n%s", document, c.Line, c.Text, code, fails, both)
			return
		}
		if len(trimEmpty(c.Output)) > 0 && !Matches(c.Output, stdout) && !Matches(c.Output, both) {
			t.Errorf("%s:%d: %s\nthe document shows:\n%s\nthe command printed:\n%s", document, c.Line, c.Text, strings.Join(c.Output, "\n"), both)
			return
		}
	}
}
