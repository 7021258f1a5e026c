package shm

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// documents are the specification.
var documents = []string{"../docs/mirror-format.md"}

// otherTables are tables of the specification that no struct is laid over: the page of waiters (TestPageLayoutIsThatOfTheSpecification) and the
// messages of the sockets NAME.live (TestLiveMessageIsThatOfTheSpecification) and NAME.words.
var otherTables = map[string]bool{"page": true, "live": true, "words": true}

// wordPlace is where a word of the format stands, in its table of the document.
type wordPlace struct{ offset, size int }

// sizeOfType returns the bytes of a type as the documents write it: u32, i64[2], char[64].
func sizeOfType(t *testing.T, name string) int {
	t.Helper()
	sizes := map[string]int{
		"char": 1, "u32": 4, "u64": 8, "i64": 8,
		"segment": segmentDescriptorSize, "slot": slotSize, "value": valueSize,
	}
	name, count, array := strings.Cut(strings.TrimSuffix(name, "]"), "[")
	n := 1
	if array {
		n, _ = strconv.Atoi(count)
	}
	size, ok := sizes[name]
	if !ok || n == 0 {
		t.Errorf("type %s[%s] is none of the documents' types", name, count)
	}
	return size * n
}

// The tables of the specification must have exactly the words of the code, at the same offsets.
func TestLayoutIsThatOfTheSpecification(t *testing.T) {
	row := regexp.MustCompile(`(?m)^\| (\d+) \| ([a-z0-9\[\]]+) \| ([a-z_]+)(?:\.([a-z_]+))? \|`)
	seen := make(map[string]wordPlace)
	for _, path := range documents {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range row.FindAllStringSubmatch(string(text), -1) {
			table, name := m[3], m[4]
			if name == "" {
				table, name = "", m[3]
			}
			if otherTables[table] {
				continue
			}
			off, _ := strconv.Atoi(m[1])
			key := table + "." + name
			if _, twice := seen[key]; twice {
				t.Errorf("%s stands in the documents twice", key)
			}
			seen[key] = wordPlace{off, sizeOfType(t, m[2])}
			o, ok := overlays[table][name]
			if !ok {
				t.Errorf("%s is in the documents and not in the code", key)
				continue
			}
			f, _ := structs[table].typ.FieldByName(o.field)
			if want := (wordPlace{o.constant, int(f.Type.Size())}); seen[key] != want {
				t.Errorf("%s: the documents say %+v, the code %+v", key, seen[key], want)
			}
		}
	}
	for table, words := range overlays {
		for name := range words {
			if _, ok := seen[table+"."+name]; !ok {
				t.Errorf("%s.%s is not in the documents", table, name)
			}
		}
	}
}

// The message of the socket NAME.live must have the layout of the specification.
func TestLiveMessageIsThatOfTheSpecification(t *testing.T) {
	text, err := os.ReadFile(documents[0])
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^\| (\d+) \| ([a-z0-9\[\]]+) \| live\.([a-z_]+) \|`)
	got := make(map[string]string)
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		got[m[3]] = m[1] + " " + m[2]
	}

	want := map[string]string{
		"magic":      fmt.Sprintf("%d char[%d]", lvmMagic, len(liveMagic)),
		"version":    fmt.Sprint(lvmVersion, " u32"),
		"byte_order": fmt.Sprint(lvmByteOrder, " u32"),
		"map":        fmt.Sprint(lvmMap, " u32"),
		"cpus":       fmt.Sprint(lvmCPUs, " u32"),
		"counters":   fmt.Sprint(lvmCounters, " u32"),
		"stride":     fmt.Sprint(lvmStride, " u64"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("code -, document +:\n%s", diff)
	}
}

// People read the specification next to code, so none of its lines may exceed 120 characters.
func TestSpecificationHasNoLongLine(t *testing.T) {
	for _, path := range documents {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if n := utf8.RuneCountInString(line); n > 120 {
				t.Errorf("%s:%d: %d characters", path, i+1, n)
			}
		}
	}
}
