//go:build unix

package trust

import (
	"errors"
	"runtime"
	"testing"
)

// A program on Linux that does not learn whether it has the privileges of its file counts as one that has.
func TestProgramCountsAsSetIDUnlessTheKernelSaysNo(t *testing.T) {
	for _, c := range []struct {
		name   string
		vector [][2]uintptr
		err    error
		want   bool
	}{
		{"of the caller", [][2]uintptr{{6, 4096}, {23, 0}}, nil, false},
		{"of the file", [][2]uintptr{{6, 4096}, {23, 1}}, nil, true},
		{"not known", nil, errors.New("no vector"), runtime.GOOS == "linux"},
	} {
		if got := secure(c.vector, c.err); got != c.want {
			t.Errorf("privileges %s: %v, want %v", c.name, got, c.want)
		}
	}
}
