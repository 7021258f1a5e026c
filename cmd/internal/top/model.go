package top

import (
	"errors"
	"io"
	"io/fs"
	"math"
	"time"

	"charm.land/bubbles/v2/help"
	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/flowtally/flowtally/cmd/internal/selection"
	"github.com/flowtally/flowtally/shm"
)

// Options are the options of Run.
type Options struct {
	// Open opens the mirror. It is called again while it returns fs.ErrNotExist or shm.ErrNotReady.
	Open func() (*shm.Instance, error)
	// Path names the mirror before it is open.
	Path string
	// Select reports whether a counter is shown. nil: every counter is.
	Select func(shm.Entry) bool
	// Sum adds the counters up by their labels. nil: each counter has a row.
	Sum *selection.Selection
	// Interval is the time between two looks. 0: a second.
	Interval time.Duration
	// Count is the number of looks after which Run returns. 0: no number.
	Count int
	// Sort is the column of the order, and Reverse reverses the order.
	Sort    Column
	Reverse bool
	// Now is the clock of the ages, in ns of CLOCK_MONOTONIC. nil: shm.Now.
	Now func() int64

	// Input and Output are the terminal. Environ is the environment that describes it; nil: of the process.
	Input   io.Reader
	Output  io.Writer
	Environ []string
}

func (o Options) clock() func() int64 {
	if o.Now != nil {
		return o.Now
	}
	return shm.Now
}

// page is the content of the screen above the status line.
type page int

const (
	onTable page = iota
	onCounter
	onHelp
)

// model is the state of the screen.
type model struct {
	o    Options
	keys keyMap
	help help.Model
	ink  inks

	source  *source // nil: the mirror is not open
	waiting error   // why it is not
	failed  error   // ended the program
	table   table
	page    page
	paused  bool
	looks   int

	input   textinput.Model // of the filter
	editing bool

	counter shm.Entry // on its page
	gone    bool      // the counter of the page was removed
	scroll  int       // first line of the page

	drawn string // the screen as it was drawn last
	stale bool   // the state has changed since

	width, height int
	method        ansi.Method // in which the terminal counts cells
	columns       layout
}

func newModel(o Options) *model {
	if o.Interval <= 0 {
		o.Interval = time.Second
	}

	input := textinput.New()
	input.Prompt = ""
	input.CharLimit = 255
	input.SetVirtualCursor(false)
	input.KeyMap.Paste.SetEnabled(false) // it would run a program of the desktop; a terminal pastes by itself

	return &model{
		o:     o,
		keys:  newKeyMap(),
		help:  help.New(),
		ink:   newInks(),
		input: input,
		table: table{by: o.Sort, reverse: o.Reverse, changes: -1},
		stale: true,
	}
}

// Messages of the program to itself.
type (
	lookMsg   struct{}
	openedMsg struct {
		in  *shm.Instance
		err error
	}
)

// retry is the time after which a mirror that does not exist is looked for again.
const retry = 250 * time.Millisecond

// Init opens the mirror.
func (m *model) Init() tea.Cmd { return m.open }

func (m *model) open() tea.Msg {
	in, err := m.o.Open()
	return openedMsg{in, err}
}

func (m *model) tick() tea.Cmd {
	return tea.Tick(m.o.Interval, func(time.Time) tea.Msg { return lookMsg{} })
}

// opened takes over the mirror, or waits for it.
func (m *model) opened(msg openedMsg) tea.Cmd {
	switch {
	case msg.err == nil:
		m.source = newSource(msg.in, m.o)
		m.waiting = nil
		return m.look()
	case errors.Is(msg.err, fs.ErrNotExist), errors.Is(msg.err, shm.ErrNotReady):
		m.waiting = msg.err
		return tea.Tick(retry, func(time.Time) tea.Msg { return m.open() })
	}
	m.failed = msg.err
	return tea.Quit
}

// look reads the mirror, and returns the command that leads to the next look. The last look is always drawn.
func (m *model) look() tea.Cmd {
	last := m.o.Count > 0 && m.looks+1 >= m.o.Count
	if !m.paused {
		m.source.follow()
		if last || m.looks%m.looksPerDrawing() == 0 {
			m.table.arrange(m.source)
			m.refresh()
			m.stale = true
		} else {
			m.table.sample(m.source)
		}
		m.looks++
	}

	if m.o.Count > 0 && m.looks >= m.o.Count {
		return tea.Quit
	}
	return m.tick()
}

// cellsPerSecond bounds the cells that looks let bubbletea draw: it takes 0.2 µs for each cell of the screen, whether
// the cell changed or not. A screen is drawn at least once a second.
const cellsPerSecond = 30_000

// looksPerDrawing is the number of looks for which the screen is drawn once.
func (m *model) looksPerDrawing() int {
	perLook := cellsPerSecond * m.o.Interval.Seconds()
	need := math.Ceil(float64(m.width*m.height) / perLook)
	return max(1, int(min(need, 1/m.o.Interval.Seconds())))
}

// refresh reads the entry of the counter that has the page. A counter that was added again under its name takes the
// page over.
func (m *model) refresh() {
	if m.page != onCounter || m.source.err != nil {
		return
	}

	e, err := m.source.reader.Entry(m.counter.Handle)
	if errors.Is(err, shm.ErrGone) || err == nil && e.Name != m.counter.Name {
		var found []shm.Entry
		found, err = m.source.reader.Find(m.counter.Name)
		switch {
		case err == nil && len(found) == 0:
			err = shm.ErrGone
		case err == nil:
			e = found[0]
		}
	}
	m.gone = errors.Is(err, shm.ErrGone)
	if err == nil {
		m.counter = e
	}
}

// close ends the reading of the mirror.
func (m *model) close() {
	if m.source != nil {
		m.source.in.Close()
	}
}
