package include

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flowtally/flowtally/shm"
)

// Places of the header and of an entry (docs/mirror-format.md).
const (
	historyIntent = 1024
	historyTail   = 1032
)

// lied is a whole mirror without a writer, changed.
func lied(t *testing.T, change func(file []byte)) (path string) {
	t.Helper()
	path, w := newMirror(t, shm.Options{Counters: 128, LatencyCounters: 8, History: 32})
	furnish(t, w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	change(file)
	if err := os.WriteFile(path, file, 0); err != nil {
		t.Fatal(err)
	}
	return path
}

// A name ends at its NUL, whatever a hostile writer puts after it.
func TestCFindsANameThatIsNotPadded(t *testing.T) {
	path := lied(t, func(file []byte) {
		at := bytes.Index(file, []byte("c17\x00"))
		file[at+5] = 'x'
		at = bytes.Index(file, []byte("fast1\x00"))
		file[at+63] = 'x'
	})
	dump := build(t, "dump", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
	want := dumpGo(t, path)
	for _, name := range []string{"\tc17\t", "\tfast1\t"} {
		if !strings.Contains(want, name) {
			t.Errorf("no entry%s", name)
		}
	}
	if diff := cmp.Diff(want, run(t, dump, path)); diff != "" {
		t.Errorf("Go reads -, C reads +:\n%s", diff)
	}
}

// If the words of a history contradict each other, ft_cursor_next must say so instead of FT_EMPTY.
func TestCSeesAHistoryThatCannotBe(t *testing.T) {
	dump := build(t, "dump", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
	word := func(file []byte, at int) uint64 { return binary.NativeEndian.Uint64(file[at:]) }
	for name, change := range map[string]func(file []byte){
		"tail far behind the intent": func(f []byte) { binary.NativeEndian.PutUint64(f[historyTail:], 1) },
		"tail after the intent":      func(f []byte) { binary.NativeEndian.PutUint64(f[historyTail:], word(f, historyIntent)+1) },
	} {
		t.Run(name, func(t *testing.T) {
			path := lied(t, change)
			r, err := shm.OpenReader(path)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			c, err := r.History()
			if err != nil {
				t.Fatal(err)
			}
			c.Rewind()
			if _, _, err := c.Next(make([]shm.Record, 64)); !errors.Is(err, shm.ErrFormat) {
				t.Errorf("Go: %v", err)
			}
			out, err := exec.CommandContext(t.Context(), dump, path).CombinedOutput()
			if err == nil || !strings.Contains(string(out), "history: -19 ") {
				t.Errorf("C: %v\n%s", err, out)
			}
		})
	}
}
