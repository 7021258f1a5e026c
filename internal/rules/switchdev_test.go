package rules

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestOnlySelftestLiftsTheRefusalOfSwitchdev: a device counts in switchdev mode for a selftest alone. Nothing that runs for a
// service sets the option, and no text of a configuration or of the plugin's protocol names it.
func TestOnlySelftestLiftsTheRefusalOfSwitchdev(t *testing.T) {
	sets := regexp.MustCompile(`\bSwitchdev\s*(:|=[^=])`)
	allowed := map[string]bool{
		"cmd/internal/cli/selftest.go":       true, // it says so to the engine
		"cmd/internal/selftest/run_linux.go": true, // the report
		"dataplane/engine/backends.go":       true, // the engine says so to the backend
	}
	root, files := tracked(t)
	found := 0
	for _, f := range files {
		code := strings.HasSuffix(f, ".go") && !strings.HasSuffix(f, "_test.go") && !strings.HasPrefix(f, "internal/")
		format := strings.HasPrefix(f, "configs/") || strings.HasSuffix(f, ".proto") || strings.HasPrefix(f, "plugin/")
		if !code && !format {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, f))
		if err != nil {
			t.Fatal(err)
		}
		if format && strings.Contains(strings.ToLower(string(text)), "switchdev") {
			t.Errorf("%s names switchdev: a service could lift the refusal", f)
		}
		if code && sets.Match(text) {
			found++
			if !allowed[f] {
				t.Errorf("%s sets Switchdev", f)
			}
		}
	}
	if found != len(allowed) {
		t.Errorf("%d files set it, and %d are known", found, len(allowed))
	}
}
