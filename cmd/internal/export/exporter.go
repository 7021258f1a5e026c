package export

import (
	"cmp"
	"context"
	"log/slog"
	"sync"

	"github.com/flowtally/flowtally/cmd/internal/selection"
	"github.com/flowtally/flowtally/cmd/internal/view"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/shm"
)

// DefaultMaxCounters is the default of Options.MaxCounters. It exceeds the counters of two full segments of a mirror.
const DefaultMaxCounters = 10_000

// Options shape an Exporter. The zero value exports every counter of the instance "default".
type Options struct {
	// Path of the mirror. Empty: the mirror of Instance, wherever its writer put it.
	Path     string
	Instance string
	Reader   shm.ReaderOptions
	// Select reports whether a counter is exported. Nil: every counter is.
	Select func(shm.Entry) bool
	// LabelKeys are the keys of the flow labels to export. Callers must check them by ValidateLabelKeys.
	LabelKeys []string
	// Group returns the group of a counter. All counters of a group become one series: their sum, with the labels of the
	// group in place of LabelKeys. Nil: each counter has its own series.
	Group func(shm.Entry) selection.Group
	// MaxCounters is the most counters to export. Beyond it the oldest counters win, so adding a counter never ends the
	// series of another one. 0 means DefaultMaxCounters.
	MaxCounters int
	// Conditions reads the conditions of the instance. Nil: none are exported.
	Conditions func(context.Context) ([]dataplane.Condition, error)
	// Version of the program, for flowtally_build_info.
	Version string
	// Logger; nil discards.
	Logger *slog.Logger
}

// Exporter reads one mirror. Its methods may be called from any goroutine.
type Exporter struct {
	options Options
	log     *slog.Logger

	// Limits of Handler and Serve. Tests lower them.
	mostHeld        int64
	mostConnections int

	// mu guards the fields below it. Rendering holds it too, because a look and its series point into these fields.
	mu        sync.Mutex
	source    source
	lastLook  stamp // zero if the mirror could not be read
	catalogue catalogue
	totals    totals
	families  families
	complaint string // the last logged error of reading the mirror; "": it was readable
	dropped   int    // the last logged number of dropped counters

	conditions conditions
	pushes     pushes
}

// New returns an Exporter. The mirror need not exist yet: each look tries to open it.
func New(o Options) *Exporter {
	o.MaxCounters = cmp.Or(o.MaxCounters, DefaultMaxCounters)
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Exporter{
		options:         o,
		log:             log,
		mostHeld:        mostHeld,
		mostConnections: mostConnections,
		source:          source{path: o.Path, instance: o.Instance, options: o.Reader},
		catalogue:       catalogue{pick: o.Select, keys: o.LabelKeys, most: o.MaxCounters},
		totals:          totals{group: o.Group, log: log},
		conditions:      conditions{ask: o.Conditions, log: log},
	}
}

// Close closes the mirror. Later readings fail with shm.ErrClosed. Idempotent.
func (e *Exporter) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.source.close()
}

// look is one reading of the mirror. It is valid while Exporter.mu is held.
type look struct {
	err    error // if set, the mirror is not readable, and the other fields have no meaning
	path   string
	status shm.Status
	writer view.Writer
	now    int64 // in ns of CLOCK_MONOTONIC
	rows   []row // the counters in order of name
	series []row // one for each series: rows itself, or the sums of the groups
}

// look reads the mirror. The caller holds e.mu.
func (e *Exporter) look() look {
	l, err := e.source.read(&e.catalogue)
	l.err = err
	e.lastLook = stamp{}
	if err == nil {
		e.lastLook = stampOf(l.status)
		l.series = e.totals.series(l.rows, e.catalogue.epoch, e.catalogue.file)
	}
	e.complain(l)
	return l
}

// begin reads the mirror once, so that the log tells right at the start if the mirror is missing or if no counter is
// selected.
func (e *Exporter) begin() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.look(); l.err == nil && len(l.rows) == 0 {
		e.log.Warn("no counter of the mirror is selected: none is exported until one is", "mirror", l.path)
	}
}

// complain logs each change of the mirror's state once.
func (e *Exporter) complain(l look) {
	if l.err != nil {
		if text := l.err.Error(); text != e.complaint {
			e.complaint = text
			e.log.Warn("the mirror cannot be read: no counter is exported until it can", "err", l.err)
		}
		return
	}
	if e.complaint != "" {
		e.complaint = ""
		e.log.Info("the mirror is read", "mirror", l.path, "counters", len(l.rows))
	}

	n := e.catalogue.dropped
	if n == e.dropped {
		return
	}
	e.dropped = n
	if n == 0 {
		e.log.Info("every counter is exported again", "max_counters", e.options.MaxCounters, "mirror", l.path)
		return
	}
	e.log.Warn("more counters than --max-counters: the counters that were added last are not exported",
		"not_exported", n, "max_counters", e.options.MaxCounters, "mirror", l.path)
}

// Reading returns the exported counters for view.ToJSON.
func (e *Exporter) Reading() (*view.Reading, error) {
	r, _, err := e.reading()
	return r, err
}

// reading is Reading that also returns the poll cycle of the values.
func (e *Exporter) reading() (*view.Reading, stamp, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.look()
	if l.err != nil {
		return nil, stamp{}, l.err
	}

	r := &view.Reading{
		Path:     l.path,
		Now:      l.now,
		Zero:     view.MonotonicZero(),
		Writer:   l.writer,
		Counters: make([]view.Counter, len(l.rows)),
	}
	for i := range l.rows {
		c := &l.rows[i]
		v := view.NewCounter(c.entry)
		v.Show(c.value, c.device)
		v.Gone = c.gone
		v.Unread = c.unread
		v.Stale = v.Stale || v.Present() && !l.writer.Live()
		r.Counters[i] = v
	}
	return r, e.lastLook, nil
}

// now returns the current poll cycle of the mirror. It never waits: while another goroutine reads the mirror, ok is
// false.
func (e *Exporter) now() (s stamp, ok bool) {
	if !e.mu.TryLock() {
		return stamp{}, false
	}
	defer e.mu.Unlock()
	if e.source.in == nil || e.source.closed {
		return stamp{}, false
	}
	return stampOf(e.source.in.Reader().Status()), true
}
