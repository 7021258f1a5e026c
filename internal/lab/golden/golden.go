// Package golden compares texts with files that the repository holds, and unpacks such files.
package golden

import (
	"compress/gzip"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Compare compares got with the file at path. With update it writes the file first.
func Compare(t testing.TB, path, got string, update bool) {
	t.Helper()
	if update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got; -update rewrites it):\n%s", path, diff)
	}
}

// CompareSection compares got with the part of the document at path between the lines "<!-- NAME: how to write it -->" and
// "<!-- NAME: end -->". With update it writes that part first.
func CompareSection(t testing.TB, path, name, got string, update bool) {
	t.Helper()
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+name+": ", "<!-- "+name+": end -->\n"
	before, rest, found := strings.Cut(string(doc), begin)
	how, rest, ends := strings.Cut(rest, "\n")
	want, after, closed := strings.Cut(rest, end)
	if !found || !ends || !closed {
		t.Fatalf("%s has no place for %q", path, name)
	}

	if update {
		if err := os.WriteFile(path, []byte(before+begin+how+"\n"+got+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s, %q differs (-want +got; -update rewrites it):\n%s", path, name, diff)
	}
}

// Unpack returns the content of a file that gzip packed.
func Unpack(t testing.TB, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
