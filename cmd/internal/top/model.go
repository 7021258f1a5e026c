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
	// Path is what to call the mirror until it is open.
	Path string
	// Select reports whether to show a counter. Nil shows every counter.
	Select func(shm.Entry) bool
	// Sum adds the counters up by their labels. Nil: each counter has a row.
	Sum *selection.Selection
	// Interval is the time between two looks. 0 means a second.
	Interval time.Duration
	// Count is the number of looks after which Run returns. 0 means never.
	Count int
	// Sort is the column by which to order at first, and Reverse reverses the order.
	Sort    Column
	Reverse bool
	// Now is the clock for ages, in ns of CLOCK_MONOTONIC. Nil means shm.Now.
	Now func() int64

	// Input and Output are the terminal, and Environ its environment. A nil Environ means that of the process.
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

// page says what the screen shows above the status line.
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

	source  *source // nil until the mirror is open
	waiting error   // why it is not open
	failed  error   // the error that ended the program
	table   table
	page    page
	paused  bool
	looks   int

	input   textinput.Model // of the filter
	editing bool

	counter shm.Entry // of onCounter
	gone    bool      // counter was removed
	scroll  int       // first visible line of the page

	drawn string // the last frame
	stale bool   // the state has changed since that frame

	width, height int
	method        ansi.Method // how the terminal counts the cells of a character
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
	input.KeyMap.Paste.SetEnabled(false) // it runs a clipboard program, and terminals paste by themselves

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

// Messages from the model to itself.
type (
	lookMsg   struct{}
	openedMsg struct {
		in  *shm.Instance
		err error
	}
)

// retry is how often to look for a missing mirror.
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

// opened begins with the opened mirror, or waits for a missing one.
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

// look reads the mirror, and returns the command for the next look. It always draws the last look.
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

// cellsPerSecond limits the CPU time for drawing. bubbletea takes 0.2 µs for each cell of the screen, even for unchanged
// cells. However large the screen, it is drawn at least once a second.
const cellsPerSecond = 30_000

// looksPerDrawing returns how many looks share one drawing of the screen.
func (m *model) looksPerDrawing() int {
	perLook := cellsPerSecond * m.o.Interval.Seconds()
	need := math.Ceil(float64(m.width*m.height) / perLook)
	return max(1, int(min(need, 1/m.o.Interval.Seconds())))
}

// refresh reads the entry of the counter on the page. If the counter was removed and added again, the page goes on with
// the new one of that name.
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

// close closes the mirror, if it is open.
func (m *model) close() {
	if m.source != nil {
		m.source.in.Close()
	}
}
