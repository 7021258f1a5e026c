// Package eventlog logs the events of an instance. It logs a burst of similar events as one line.
package eventlog

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/flowtally/flowtally/dataplane"
)

// burstTime is how long a change of a flow's source is held back for similar ones.
const burstTime = 200 * time.Millisecond

// Log logs events to Logger. If an interface goes away, the source of each of its flows changes for the same reason, and
// one line tells about all of them. Log is not safe for concurrent use.
type Log struct {
	Logger       *slog.Logger
	held         []dataplane.Event // one for each burst, without object and time
	burstByEvent map[dataplane.Event]*burst
	due          <-chan time.Time
}

// burst counts events that differ only in their object and their time.
type burst struct {
	object string // of the first
	n      int
}

// Due returns a channel that becomes readable when the caller must call Flush. It is nil while no event is held back.
func (l *Log) Due() <-chan time.Time { return l.due }

// Add logs an event, either at once or at the next Flush.
func (l *Log) Add(e dataplane.Event) {
	if e.Kind != dataplane.SourceChanged || e.Lost > 0 {
		l.Flush() // first, to log events in their order
		l.line(e, 1)
		return
	}

	alike := e
	alike.Object = ""
	alike.Time = time.Time{}
	if b := l.burstByEvent[alike]; b != nil {
		b.n++
		return
	}
	if l.burstByEvent == nil {
		l.burstByEvent = make(map[dataplane.Event]*burst)
		l.due = time.After(burstTime)
	}
	l.burstByEvent[alike] = &burst{e.Object, 1}
	l.held = append(l.held, alike)
}

// Flush logs the events held back.
func (l *Log) Flush() {
	for _, e := range l.held {
		b := l.burstByEvent[e]
		e.Object = b.object
		l.line(e, b.n)
	}
	l.held = nil
	l.burstByEvent = nil
	l.due = nil
}

// line logs an event of n objects. The engine has already logged changes of flows and conditions, with more details than
// an event has, so they appear here only at level debug.
func (l *Log) line(e dataplane.Event, n int) {
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
	l.Logger.Log(context.Background(), level, strings.ReplaceAll(string(e.Kind), "-", " "), attrs...)
}
