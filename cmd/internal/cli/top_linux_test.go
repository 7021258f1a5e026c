package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/format"
)

// TestTopOnTerminal: each screen is drawn over the last one, and the terminal is given back with
// the last screen on it.
func TestTopOnTerminal(t *testing.T) {
	path, _ := webMirror(t)
	var out bytes.Buffer
	cmd := topCmd{Interval: 20 * time.Millisecond, Count: 3, Sort: "name"}
	cmd.Mirror = path
	if err := cmd.Run(&Env{Context: t.Context(), Stdout: &out, TTY: true}); err != nil {
		t.Fatal(err)
	}
	got := out.String()
	if !strings.HasPrefix(got, format.EnterScreen+format.ToOrigin) {
		t.Errorf("starts with %q", got[:min(len(got), 30)])
	}
	if n := strings.Count(got, format.ToOrigin); n != 3 {
		t.Errorf("drawn %d times, want 3", n)
	}
	drawn, left, ok := strings.Cut(got, format.LeaveScreen)
	if !ok || strings.Contains(left, "\x1b") || !strings.Contains(left, "web") || strings.Count(left, "\n") != 3 {
		t.Errorf("left behind: %q", left)
	}
	for line := range strings.Lines(strings.TrimPrefix(drawn, format.EnterScreen)) {
		if !strings.HasSuffix(line, format.ClearLine+"\r\n") && line != format.ClearBelow && !strings.HasPrefix(line, format.ClearBelow) {
			t.Errorf("line %q does not clear what it overwrites", line)
		}
	}
}
