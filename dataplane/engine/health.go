package engine

import (
	"cmp"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/event"
)

// health is the list of raised conditions.
type health struct {
	log      *slog.Logger
	events   *event.Broadcaster
	instance string // that the commands of a fix act on

	mu     sync.Mutex
	raised map[string]dataplane.Condition // by code and object
}

// update replaces the raised conditions by current, and sends an event for each difference. The keys are code and object.
func (h *health) update(current map[string]dataplane.Condition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k, c := range current {
		c.Fix = onInstance(c.Fix, h.instance)
		if old, ok := h.raised[k]; ok {
			c.Since = old.Since
			h.raised[k] = c
			continue
		}
		h.raised[k] = c
		h.log.Warn("condition raised", "code", c.Code, "object", c.Object, "text", c.Text, "fix", c.Fix)
		h.events.Publish(dataplane.Event{
			Kind: dataplane.ConditionRaised, Code: c.Code, Object: c.Object, Text: string(c.Code) + ": " + c.Text,
		})
	}
	for k, c := range h.raised {
		if _, ok := current[k]; !ok {
			delete(h.raised, k)
			h.log.Info("condition gone", "code", c.Code, "object", c.Object)
			h.events.Publish(dataplane.Event{Kind: dataplane.ConditionGone, Code: c.Code, Object: c.Object, Text: string(c.Code)})
		}
	}
}

// ownCommand matches the commands in a fix that act on one instance.
var ownCommand = regexp.MustCompile(`\bflowtally (?:apply|doctor|queue-pairs (?:connect|release))\b`)

// onInstance adds the name of the instance to the commands in a fix, unless it is the default instance.
func onInstance(fix, instance string) string {
	if instance == "default" {
		return fix
	}
	return ownCommand.ReplaceAllString(fix, "$0 --instance "+instance)
}

// list returns the raised conditions, the most severe first.
func (h *health) list() []dataplane.Condition {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := slices.AppendSeq(make([]dataplane.Condition, 0, len(h.raised)), maps.Values(h.raised))
	slices.SortFunc(out, func(a, b dataplane.Condition) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Object, b.Object))
	})
	return out
}

// updateConditions collects the conditions and updates the raised ones. It does not wait for control calls.
func (w *watcher) updateConditions() {
	now, all := time.Now(), append(w.collectConditions(), w.inForce.conditions()...)
	if differ := w.differ.Load(); differ != nil {
		all = append(all, *differ...)
	}
	current := make(map[string]dataplane.Condition)
	for _, c := range all {
		if c.Since.IsZero() {
			c.Since = now
		}
		current[string(c.Code)+"\x00"+c.Object] = c
	}
	w.health.update(current)
}

// collectConditions returns the conditions of all parts that answer without ctl.
func (w *watcher) collectConditions() []dataplane.Condition {
	out := append(w.poller.Conditions(), w.pairs.Conditions()...)
	out = append(out, w.words.Conditions()...)
	out = append(out, w.mover.catalogue.Conditions()...)
	out = append(out, w.guard.Conditions()...)
	out = append(out, w.unconfined...)
	for i, b := range w.backends {
		out = append(out, w.asked[i].conditions(b)...)
	}
	return out
}

// asked has the last answer of a backend about its conditions. A backend may be busy changing its rules, and answer only after that.
// Until then its last answer remains.
type asked struct {
	last   []dataplane.Condition
	answer chan []dataplane.Condition // not nil: a question is unanswered
}

// conditions asks b, unless it has not answered the last question yet. It waits for answerPatience at most.
func (a *asked) conditions(b backend.Backend) []dataplane.Condition {
	if a.answer != nil {
		select {
		case a.last = <-a.answer:
			a.answer = nil
		default:
		}
		return a.last
	}

	answer := make(chan []dataplane.Condition, 1)
	go func() { answer <- b.Conditions() }()
	select {
	case a.last = <-answer:
	case <-time.After(answerPatience):
		a.answer = answer
	}
	return a.last
}
