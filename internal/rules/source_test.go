package rules

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// tracked lists the files that git tracks below the root, and those that are
// about to be: a rule is broken before the commit, not after it.
func tracked(t *testing.T) (root string, files []string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		need.Missing(t, "checkout", fmt.Sprintf("git ls-files: %v", err))
	}
	for _, f := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		if info, err := os.Stat(filepath.Join(root, f)); err == nil && info.Mode().IsRegular() {
			files = append(files, f)
		}
	}
	if len(files) < 100 {
		t.Fatalf("git lists %d files", len(files))
	}
	return root, files
}

// TestNoUnfinishedWords keeps work that is left to do out of the sources, and
// error texts to an object and a gerund.
func TestNoUnfinishedWords(t *testing.T) {
	words := []string{"TO" + "DO", "FIX" + "ME", "X" + "XX", "failed" + " to", "not " + "implemented"}
	root, files := tracked(t)
	seen := 0
	for _, f := range files {
		switch filepath.Ext(f) {
		case ".go", ".c", ".h", ".s", ".S", ".proto", ".sh":
		default:
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, f))
		if err != nil {
			t.Fatal(err)
		}
		if generated(data) {
			continue
		}
		seen++
		for n, line := range bytes.Split(data, []byte("\n")) {
			line = bytes.ReplaceAll(line, []byte("X"+"XX"+"X"+"XX"), nil) // a template of mkdtemp(3)
			for _, w := range words {
				if bytes.Contains(line, []byte(w)) {
					t.Errorf("%s:%d: %q", f, n+1, w)
				}
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d files were looked at", seen)
	}
}

// TestLicencesAreSaid: BPF code has its own licence, and headers are copied into other projects, so
// each such file names its licence on its first line.
func TestLicencesAreSaid(t *testing.T) {
	root, files := tracked(t)
	seen := 0
	for _, f := range files {
		if ext := filepath.Ext(f); ext != ".c" && ext != ".h" || strings.Contains(f, "/testdata/") {
			continue
		}
		inKernel := strings.Contains("/"+f, "/bpf/")
		if !inKernel && !strings.HasPrefix(f, "shm/include/") && !strings.HasPrefix(f, "examples/") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, f))
		if err != nil {
			t.Fatal(err)
		}
		seen++
		want := "SPDX-License-Identifier: Apache-2.0"
		if inKernel {
			want = "SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)"
		}
		if first, _, _ := strings.Cut(string(data), "\n"); !strings.Contains(first, want) {
			t.Errorf("%s does not say %q on its first line", f, want)
		}
	}
	if seen < 5 {
		t.Errorf("only %d files were looked at", seen)
	}
}

// TestModuleStandsByItself: go get gives a user the same code that is built here, so go.mod
// replaces and excludes nothing.
func TestModuleStandsByItself(t *testing.T) {
	out, err := exec.Command("go", "mod", "edit", "-json", "../../go.mod").Output()
	if err != nil {
		t.Fatalf("go mod edit: %v", err)
	}
	var mod struct {
		Module           struct{ Path string }
		Replace, Exclude []any
		Toolchain        string
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	if mod.Module.Path+"/" != module {
		t.Errorf("the module is %s", mod.Module.Path)
	}
	if len(mod.Replace) > 0 || len(mod.Exclude) > 0 {
		t.Errorf("go.mod replaces %v and excludes %v: neither holds for those who import the module", mod.Replace, mod.Exclude)
	}
}

// mdLink is a link of Markdown to a file of the tree, without its anchor.
var mdLink = regexp.MustCompile(`\]\(([^)#:\s]+)(#[^)]*)?\)`)

// TestLinksLeadSomewhere follows the relative links of the documents.
func TestLinksLeadSomewhere(t *testing.T) {
	root, files := tracked(t)
	links := 0
	for _, f := range files {
		if filepath.Ext(f) != ".md" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, f))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range mdLink.FindAllSubmatch(data, -1) {
			links++
			to := filepath.Join(root, filepath.Dir(f), string(m[1]))
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s: %v", f, m[1], err)
			}
		}
	}
	if links == 0 {
		t.Error("no link was looked at")
	}
}

// TestDocumentLinesAreShort: a paragraph of a document is wrapped at 120 characters. Rows of tables and
// code blocks cannot be wrapped.
func TestDocumentLinesAreShort(t *testing.T) {
	const most = 120
	root, files := tracked(t)
	for _, f := range files {
		if filepath.Ext(f) != ".md" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, f))
		if err != nil {
			t.Fatal(err)
		}
		code := false
		for n, line := range strings.Split(string(data), "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				code = !code
			}
			if !code && !strings.HasPrefix(line, "|") && utf8.RuneCountInString(line) > most {
				t.Errorf("%s:%d has more than %d characters", f, n+1, most)
			}
		}
	}
}

// The README and the page on installing name the same kernels.
func TestDocumentsNameOneOldestKernel(t *testing.T) {
	root, _ := tracked(t)
	const needs = "Linux 6.1 or newer, and 6.6 for sent packets and TCX"
	for _, f := range []string{"README.md", "docs/install.md"} {
		data, err := os.ReadFile(filepath.Join(root, f))
		if err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(strings.Fields(string(data)), " "); !strings.Contains(text, needs) {
			t.Errorf("%s does not say %q", f, needs)
		}
	}
}
