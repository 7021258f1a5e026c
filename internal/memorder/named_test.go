package memorder

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// inCode matches the comment that names a barrier in the code.
var inCode = regexp.MustCompile(`\bbarrier ([a-z]+(?:-[a-z]+)+)\b`)

// notInC are readers' barriers that the C reader does not need.
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
			continue // this barrier is in the kernel
		}
		if goCode[barrier] == "" {
			t.Errorf("no file of shm and xdp has a comment that says: barrier %s", barrier)
		}
		reader := strings.HasSuffix(barrier, "-acquire") || barrier == "read-fence" || barrier == "entry-fence" ||
			barrier == "device-fence" || barrier == "view-fence" || barrier == "view-words-fence" || barrier == "history-read-fence"
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

// named returns the barriers named in files, each with the last file that names it.
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
