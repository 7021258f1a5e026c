//go:build unix

package reload

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestAFIFOEndsWithTheCaller: a FIFO in the place of the file keeps a reload, and so the end of the instance, no longer
// than the caller waits, and a running instance refuses it.
func TestAFIFOEndsWithTheCaller(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.yaml")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := Again(t.Context(), path); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a reload of a FIFO: %v", err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := Load(ctx, path)
		done <- err
	}()
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("Load waits for a writer of the FIFO")
	}
}
