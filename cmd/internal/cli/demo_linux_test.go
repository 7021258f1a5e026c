package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
)

// The plugin of the demo is root, and its loader reads a copy of a file that only root or the caller could have written.
func TestDemoPreloadsACopyThatNobodyElseCouldHaveWritten(t *testing.T) {
	library := filepath.Join(t.TempDir(), "uverbs.so")
	if err := os.WriteFile(library, []byte("library"), 0o644); err != nil {
		t.Fatal(err)
	}

	at, leave, err := withinReach(library)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(at); err != nil || string(text) != "library" || at == library {
		t.Errorf("%s has %q (%v), want a copy of %s", at, text, err, library)
	}
	leave()
	if _, err := os.Stat(filepath.Dir(at)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of the copy: %v, want none", err)
	}

	t.Run("TMPDIR with a blank", func(t *testing.T) {
		t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "a b"))
		if err := os.Mkdir(os.TempDir(), 0o755); err != nil {
			t.Fatal(err)
		}
		if _, _, err := withinReach(library); err == nil || !strings.Contains(err.Error(), "set TMPDIR to another directory") {
			t.Errorf("got %v", err)
		}
		if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 {
			t.Errorf("%v is left behind (%v)", left, err)
		}
	})

	if err := os.Chmod(library, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, _, err := withinReach(library); !errors.Is(err, dataplane.ErrPermission) {
		t.Errorf("a library that others can write: %v, want ErrPermission", err)
	}
}
