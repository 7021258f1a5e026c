package export

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flowtally/flowtally/dataplane"
)

// A condition appears in the metrics with the first reading after it was raised, and disappears with the first one
// after its end. Without a reply from the instance, no condition is exported.
func TestConditionsAreExportedWhileTheInstanceReplies(t *testing.T) {
	m := newMirror(t, webEntry("web"))
	m.publish(map[string][2]uint64{"web": {10, 640}})
	synctest.Test(t, func(t *testing.T) {
		var raised []dataplane.Condition
		var fault error
		var log strings.Builder
		e := New(Options{
			Path:       m.path,
			Conditions: func(context.Context) ([]dataplane.Condition, error) { return raised, fault },
			Logger:     slog.New(slog.NewTextHandler(&log, nil)),
		})
		defer e.Close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		look := func() scraped {
			time.Sleep(conditionsPeriod)
			synctest.Wait()
			return scrape(t, e)
		}
		const down = "flowtally_condition,code=link-down,object=eth0,severity=high"
		scrape(t, e).wantNone(t, "flowtally_condition") // not asked yet
		go e.conditions.watch(ctx)
		synctest.Wait()
		before := scrape(t, e)
		before.want(t, "flowtally_conditions_up", 1)
		before.wantNone(t, "flowtally_condition,")

		raised = []dataplane.Condition{
			{Code: "link-down", Object: "eth0", Severity: dataplane.High, Text: "link is down"},
			{Code: "link-down", Object: "eth0", Severity: dataplane.High, Text: "said twice"},
		}
		now := look()
		now.want(t, down, 1)
		now.want(t, "flowtally_conditions_up", 1)

		fault = errors.New("no reply")
		now = look()
		now.want(t, "flowtally_conditions_up", 0)
		now.wantNone(t, "flowtally_condition,")
		look()
		if n := strings.Count(log.String(), "no reply"); n != 1 {
			t.Errorf("%d complaints of two looks, want 1:\n%s", n, &log)
		}

		raised, fault = nil, nil
		now = look()
		now.want(t, "flowtally_conditions_up", 1)
		now.wantNone(t, "flowtally_condition,")
		if !strings.Contains(log.String(), "the conditions are read") {
			t.Errorf("the log does not say that they are read again:\n%s", &log)
		}
	})
}
