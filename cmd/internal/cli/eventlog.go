package cli

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/flowtally/flowtally/dataplane"
)

// burstTime is how long a change of a flow's source waits for others that say the same.
const burstTime = 200 * time.Millisecond

// eventLog logs events. When the source of several flows changes for one reason, it logs one line for
// all of them.
type eventLog struct {
	log  *slog.Logger
	held []dataplane.Event // without the fields in which they differ
	more map[dataplane.Event]*burst
	due  <-chan time.Time // nil: nothing is held
}

type burst struct {
	object string // of the first
	n      int
}

// add logs an event, now or when due is.
func (l *eventLog) add(e dataplane.Event) {
	if e.Kind != dataplane.SourceChanged || e.Lost > 0 {
		l.flush() // lines keep the order of events
		l.line(e, 1)
		return
	}
	same := e
	same.Object, same.Time = "", time.Time{}
	if b := l.more[same]; b != nil {
		b.n++
		return
	}
	if l.more == nil {
		l.more = make(map[dataplane.Event]*burst)
		l.due = time.After(burstTime)
	}
	l.more[same] = &burst{e.Object, 1}
	l.held = append(l.held, same)
}

// flush logs the held events.
func (l *eventLog) flush() {
	for _, e := range l.held {
		b := l.more[e]
		e.Object = b.object
		l.line(e, b.n)
	}
	l.held, l.more, l.due = nil, nil, nil
}

// line logs a change of n flows. Flows and conditions an engine logs by itself, with
// more than an event carries.
func (l *eventLog) line(e dataplane.Event, n int) {
	level := slog.LevelDebug
	switch e.Kind {
	case dataplane.SourceChanged, dataplane.PluginRestarted:
		level = slog.LevelWarn
	}
	attrs := []any{"object", e.Object, "what", e.Text}
	if n > 1 {
		attrs = append(attrs, "and_more", n-1)
	}
	switch u := e.Uncounted; {
	case u.Unknown:
		attrs = append(attrs, "uncounted", "unknown")
	case u.Packets > 0 || u.Bytes > 0:
		attrs = append(attrs, "uncounted_packets", u.Packets, "uncounted_bytes", u.Bytes)
	}
	if e.Lost > 0 {
		attrs = append(attrs, "events_lost", e.Lost)
	}
	l.log.Log(context.Background(), level, strings.ReplaceAll(string(e.Kind), "-", " "), attrs...)
}
