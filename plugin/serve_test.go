package plugin_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/hosted"
	"github.com/flowtally/flowtally/plugin"
)

// told is a plugin whose factory fails with what it was told of its host.
func told() int {
	return plugin.Serve(plugin.ServeOptions{Factory: func(ctx context.Context, _ dataplane.Config, _ *slog.Logger) (dataplane.Service, error) {
		h, is := hosted.From(ctx)
		return nil, fmt.Errorf("host: %v, page of verbs: %v", is, h.Verbs != nil)
	}})
}

// TestPluginNamesVerbsWithoutAWordInItsMain: a plugin of another program has the protection from crashes in verbs, though
// its main function says nothing of it.
func TestPluginNamesVerbsWithoutAWordInItsMain(t *testing.T) {
	opts, _ := marked(t, "told")
	if _, err := plugin.Launch(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "host: true, page of verbs: true") {
		t.Errorf("the factory was told: %v", err)
	}
}

// TestPluginWithoutTrialMainEndsItsTrials: the process of a trial inherits the environment of the plugin. It is not to
// serve then, but to end and say why.
func TestPluginWithoutTrialMainEndsItsTrials(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{hosted.TrialWord, hosted.ReleaseWord} {
		cmd := exec.CommandContext(t.Context(), self, word)
		cmd.Env = append(os.Environ(), roleEnv+"=fake", plugin.Handshake.MagicCookieKey+"="+plugin.Handshake.MagicCookieValue)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(string(out), "does not call engine.TrialMain") {
			t.Errorf("%s: exit code %d\n%s", word, code, out)
		}
	}
}
