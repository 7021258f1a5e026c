package rules

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// architecturePath is a file or a package that docs/architecture.md names.
var architecturePath = regexp.MustCompile("`([a-z][\\w-]*(?:/[\\w.-]+)+)`")

// TestArchitectureNamesFiles: the map leads to files that exist.
func TestArchitectureNamesFiles(t *testing.T) {
	text, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	found := architecturePath.FindAllSubmatch(text, -1)
	for _, m := range found {
		if _, err := os.Stat(filepath.Join("../..", string(m[1]))); err != nil {
			t.Errorf("docs/architecture.md names %s, which does not exist", m[1])
		}
	}
	if len(found) < 60 {
		t.Errorf("only %d names of files were found", len(found))
	}
}
