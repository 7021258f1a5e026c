package cli

import (
	"io"
	"strings"
	"testing"
)

// endless is a file without an end, as /dev/zero.
type endless struct{ read int64 }

func (e *endless) Read(p []byte) (int, error) {
	e.read += int64(len(p))
	return len(p), nil
}

func TestEndlessFileOfFlowsIsRefusedAtTheBound(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 256 MiB")
	}
	e := &endless{}
	if _, err := readFlows(io.LimitReader(e, 1<<40)); err == nil || !strings.Contains(err.Error(), "more than 256 MiB") {
		t.Errorf("after %d bytes: %v", e.read, err)
	}
}
