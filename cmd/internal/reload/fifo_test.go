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

// A FIFO in place of the file must not block the end of an instance. A running instance does not even open it.
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
