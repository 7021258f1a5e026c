package memorder

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// inCode is how the code names a barrier at its place.
var inCode = regexp.MustCompile(`\bbarrier ([a-z]+(?:-[a-z]+)+)\b`)

// notInC are barriers of readers that the C reader does without.
var notInC = map[string]string{
	"changes-acquire": "it keeps no table of names",
	"mark-acquire":    "it reads no source",
}

// A comment names each barrier of a program where the code has it: in Go, and also in C if a reader needs it. The code
// must name no other barrier.
func TestBarriersAreInTheCode(t *testing.T) {
	goCode, cCode := named(t, "../../shm/*.go", "../../xdp/*.go", "../../xdp/bpf/*.h"), named(t, "../../shm/include/*.h")
	for barrier := range needed() {
		if strings.HasPrefix(barrier, "futex-") {
			continue // the kernel has it
		}
		if goCode[barrier] == "" {
			t.Errorf("no file of shm and xdp has a comment that says: barrier %s", barrier)
		}
		reader := strings.HasSuffix(barrier, "-acquire") || barrier == "read-fence" || barrier == "quick-fence" ||
			barrier == "entry-fence" || barrier == "device-fence" || barrier == "view-fence" || barrier == "view-words-fence" || barrier == "history-read-fence"
		if reader && cCode[barrier] == "" && notInC[barrier] == "" {
			t.Errorf("no header of shm/include has a comment that says: barrier %s", barrier)
		}
	}
	for _, code := range []map[string]string{goCode, cCode} {
		for barrier, file := range code {
			if _, ok := needed()[barrier]; !ok {
				t.Errorf("%s names the barrier %s, which no program has", file, barrier)
			}
		}
	}
	t.Logf("%d barriers are named in Go, %d in C", len(goCode), len(cCode))
}

// named returns the barriers that files name, each with the last of them.
func named(t *testing.T, patterns ...string) map[string]string {
	t.Helper()
	var files []string
	for _, pattern := range patterns {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	names := map[string]string{}
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range inCode.FindAllSubmatch(text, -1) {
			names[string(m[1])] = filepath.Base(f)
		}
	}
	return names
}
