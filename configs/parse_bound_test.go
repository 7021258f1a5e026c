package configs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAConfigurationHasABound: a file that grows without an end, such as /dev/zero, does not take the memory.
func TestAConfigurationHasABound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.yaml")
	if err := os.WriteFile(path, []byte("flows: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	readFile := func(path string, most int64) ([]byte, error) {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return readAll(f, most)
	}
	if data, err := readFile(path, 10); err != nil || len(data) != 10 {
		t.Errorf("a file of the most bytes: %q, %v", data, err)
	}
	if _, err := readFile(path, 9); err == nil || !strings.Contains(err.Error(), path+": more than 9 bytes") {
		t.Errorf("a longer file: %v", err)
	}
	if _, err := readFile("/dev/zero", 1<<20); err == nil && os.PathSeparator == '/' {
		t.Error("/dev/zero was read")
	}
}

// The files of a configuration have a number of values together, however long they are.
func TestAConfigurationHasABoundOfValues(t *testing.T) {
	part := strings.Repeat("aaaaaaa,", mostValues/8) // two values in eight bytes
	a := newAllowance()
	for i := range 3 {
		if err := a.take(part); err != nil {
			t.Fatalf("part %d: %v", i, err)
		}
	}
	if err := a.take(part + part); err == nil || !strings.Contains(err.Error(), "the files of a configuration have 16777216 at most") {
		t.Errorf("more values than allowed: %v", err)
	}
	if err := a.take(part); err != nil {
		t.Errorf("as many values as allowed: %v", err)
	}
}
