package trial

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A device tried for its queue pairs is tried once more before flows are counted on it. If either trial fails, neither
// use is allowed.
func TestGuardTriesADeviceOnceForEachUse(t *testing.T) {
	for _, c := range []struct {
		name  string
		exit  string // of a trial whose request has flows
		tries int    // the library's among them
	}{
		{"sound", "0", 3},
		{"fails with flows", "2", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "tries")
			script := `read -r r; echo "$r" >>` + log + `; case "$r" in *'"Flows":true'*) exit ` + c.exit + `;; esac`
			g := New(Options{Command: Command{Path: "/bin/sh", Args: []string{"sh", "-c", script}}, Logger: slog.New(slog.DiscardHandler)})
			if err := g.Device(Request{Device: "a"}); err != nil {
				t.Fatalf("for queue pairs: %v", err)
			}
			for range 2 {
				if err := g.Device(Request{Device: "a", Flows: true}); (err != nil) != (c.exit != "0") {
					t.Errorf("for flows: %v", err)
				}
				if err := g.Device(Request{Device: "a"}); (err != nil) != (c.exit != "0") {
					t.Errorf("for queue pairs, once flows were tried: %v", err)
				}
			}
			text, err := os.ReadFile(log)
			if n := strings.Count(string(text), `"Device"`); err != nil || n != c.tries {
				t.Errorf("%d trials (%v), want %d:\n%s", n, err, c.tries, text)
			}
		})
	}
}
