package rules

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	declaredTest = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w*)\(`)
	namedTest    = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w+`)
)

// TestNamedTestsAreThere: a test that a document or a comment names is one of the repository's.
// Code in a comment names its own.
func TestNamedTestsAreThere(t *testing.T) {
	root, files := tracked(t)
	text := make(map[string]string)
	declared := make(map[string]bool)
	for _, f := range files {
		if ext := filepath.Ext(f); ext != ".go" && ext != ".md" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, f))
		if err != nil {
			t.Fatal(err)
		}
		text[f] = string(data)
		if strings.HasSuffix(f, "_test.go") {
			for _, m := range declaredTest.FindAllStringSubmatch(text[f], -1) {
				declared[m[1]] = true
			}
		}
	}
	named := 0
	for f, s := range text {
		for i, line := range strings.Split(s, "\n") {
			if filepath.Ext(f) == ".go" {
				_, line, _ = strings.Cut(line, "// ")
			}
			for _, name := range namedTest.FindAllString(line, -1) {
				named++
				if !declared[name] {
					t.Errorf("%s:%d names %s, which is not there", f, i+1, name)
				}
			}
		}
	}
	if named < 100 {
		t.Errorf("only %d names were found", named)
	}
}
