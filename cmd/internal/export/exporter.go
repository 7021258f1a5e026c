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

// DefaultMaxCounters is the bound of Options.MaxCounters: the counters of two full segments of a mirror, and some.
const DefaultMaxCounters = 10_000

// Options shape an Exporter. The zero value exports every counter of the instance "default".
type Options struct {
	// Path of the mirror. Empty: the mirror of Instance, wherever its writer put it.
	Path     string
	Instance string
	Reader   shm.ReaderOptions
	// Select reports whether a counter is exported. Nil: every counter is.
	Select func(shm.Entry) bool
	// LabelKeys are the keys of flow labels that become labels of a series. ValidateLabelKeys checks them.
	LabelKeys []string
	// Group returns the group of a counter. The counters of a group are exported as one sum, with the labels of the
	// group instead of LabelKeys. Nil: counters are exported one by one.
	Group func(shm.Entry) selection.Group
	// MaxCounters bounds the exported counters. The counters that were added first are exported, so that a series does
	// not end because another counter is added. 0 means DefaultMaxCounters.
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

	// The bounds of Handler and Serve; tests have less.
	mostHeld        int64
	mostConnections int

	mu        sync.Mutex // held while the mirror is read and a reading is rendered
	source    source
	lastLook  stamp // zero if the mirror could not be read
	catalogue catalogue
	totals    totals
	families  families
	complaint string // the last error of reading that was logged
	dropped   int    // the number of dropped counters that was logged last

	conditions conditions
	pushes     pushes
}

// New returns an Exporter. The mirror may not exist yet: it is opened when it does.
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

// Close ends the following of the mirror. Idempotent.
func (e *Exporter) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.source.close()
}

// look is one reading of the mirror. It is valid while Exporter.mu is held.
type look struct {
	err    error // the mirror cannot be read: the other fields have no meaning
	path   string
	status shm.Status
	writer view.Writer
	now    int64 // in ns of CLOCK_MONOTONIC
	rows   []row // the counters in order of name
	series []row // the rows that have series: rows, or one for each group
}

// look reads the mirror. The caller holds e.mu.
func (e *Exporter) look() look {
	l, err := e.source.read(&e.catalogue)
	l.err = err
	e.lastLook = stamp{}
	if err == nil {
		e.lastLook = stampOf(l.status)
		l.series = e.totals.series(l.rows, e.catalogue.epoch, e.catalogue.of)
	}
	e.complain(l)
	return l
}

// begin looks at the mirror once, so that the log of the start tells whether there is one and whether a counter in it
// is exported.
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

// reading returns the exported counters, and the poll cycle that they are of.
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

// now returns the poll cycle of the mirror. ok is false if it is not known without waiting, as during a look.
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
