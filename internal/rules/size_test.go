package rules

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// mostLines is the number of hand-written lines that a package may have, tests apart.
const mostLines = 4000

// large are the packages that may have more lines, and the number.
var large = map[string]int{
	"ibv": 6000, "shm": 8000, "xdp": 6000, // each is one format or one interface, and stays whole
}

// TestPackagesStaySmall: a package has a size at which a reader can find a thing by the names of its files.
func TestPackagesStaySmall(t *testing.T) {
	for name, p := range packages(t) {
		lines := 0
		for _, f := range append(p.GoFiles, p.IgnoredGoFiles...) {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			data, err := os.ReadFile(filepath.Join(p.Dir, f))
			if err != nil {
				t.Fatal(err)
			}
			if !generated(data) {
				lines += bytes.Count(data, []byte("\n"))
			}
		}
		most, ok := large[name]
		if !ok {
			most = mostLines
		}
		if lines > most {
			t.Errorf("package %s has %d lines, more than %d: cut it along a seam", name, lines, most)
		}
		if ok && lines < mostLines {
			t.Errorf("package %s has %d lines: it needs no limit of its own", name, lines)
		}
	}
}
