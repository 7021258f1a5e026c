package eventlog

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
)

// Two interfaces go away at the same time, each with two flows. An event of another kind flushes the lines of both.
func TestEqualEventsOfAnInterfaceBecomeOneLine(t *testing.T) {
	var talk strings.Builder
	log := &Log{Logger: slog.New(slog.NewTextHandler(&talk, nil))}
	for i, name := range []string{"a", "b", "c", "d"} {
		text := []string{"near0 was lost", "near1 was lost"}[i%2]
		log.Add(dataplane.Event{Time: time.Now(), Kind: dataplane.SourceChanged, Object: name, Text: text, Uncounted: dataplane.Uncounted{Unknown: true}})
	}
	if talk.Len() != 0 || log.Due() == nil {
		t.Errorf("said at once: %q", talk.String())
	}
	log.Add(dataplane.Event{Kind: dataplane.PluginRestarted, Object: "plugin", Text: "restarted it"})
	lines := strings.Split(strings.TrimSpace(talk.String()), "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], `object=a what="near0 was lost" and_more=1 uncounted=unknown`) ||
		!strings.Contains(lines[1], `object=b what="near1 was lost" and_more=1`) || !strings.Contains(lines[2], "restarted it") {
		t.Errorf("got %q", lines)
	}
}
