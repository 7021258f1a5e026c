//go:build amd64 && !race

package shm

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// Load must stay within the compiler's budget for inlining, because a call would make it twice as slow.
func TestLoadInlines(t *testing.T) {
	need.Tool(t, "go")
	out, err := exec.Command("go", "build", "-gcflags=-m", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "can inline (*HandleCounter).Load") {
		t.Error("HandleCounter.Load is not inlined any more")
	}
}
