// Package eventlog logs the events of an instance, a burst of alike ones as one line.
package eventlog

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/flowtally/flowtally/dataplane"
)

// burstTime is how long a change of a flow's source waits for others that say the same.
const burstTime = 200 * time.Millisecond

// Log logs events to Logger. When the source of several flows changes for one reason, it logs one line for all of them.
type Log struct {
	Logger       *slog.Logger
	held         []dataplane.Event // each stands for a burst
	burstByEvent map[dataplane.Event]*burst
	due          <-chan time.Time
}

// burst is events that differ in their object and their time alone.
type burst struct {
	object string // of the first
	n      int
}

// Due delivers the time at which Flush is to be called. Nil: no event is held.
func (l *Log) Due() <-chan time.Time { return l.due }

// Add logs an event, now or at the next Flush.
func (l *Log) Add(e dataplane.Event) {
	if e.Kind != dataplane.SourceChanged || e.Lost > 0 {
		l.Flush() // lines keep the order of events
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

// Flush logs the held events.
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

// line logs a change of n flows. Changes of flows and conditions are of level debug: the engine has logged them, with
// more than an event carries.
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
