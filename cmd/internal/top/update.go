package top

import (
	"strings"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

// Update changes the state of the screen by a message.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var cmd tea.Cmd
	if _, ok := msg.(lookMsg); !ok {
		m.stale = true
	}
	switch msg := msg.(type) {
	case openedMsg:
		cmd = m.opened(msg)
	case lookMsg:
		cmd = m.look()
	case tea.WindowSizeMsg:
		m.resize(msg.Width, msg.Height)
	case tea.ModeReportMsg:
		if msg.Mode == ansi.ModeUnicodeCore && !msg.Value.IsNotRecognized() && !msg.Value.IsPermanentlyReset() {
			m.method = ansi.GraphemeWidth // bubbletea turns the mode on, so count like the terminal
		}
	case tea.PasteMsg:
		if m.editing {
			cmd = m.edit(msg)
		}
	case tea.KeyPressMsg:
		cmd = m.press(msg)
	}
	return m, cmd
}

func (m *model) resize(width, height int) {
	m.width, m.height = width, height
	m.columns = layout{}
	m.table.height = max(0, height-m.chrome())
	m.rearrange()
}

// chrome returns the number of lines besides the rows: the headings and the status line.
func (m *model) chrome() int {
	if m.height < 3 {
		return 1
	}
	return 2
}

// rearrange updates the window between two looks.
func (m *model) rearrange() {
	if m.source != nil {
		m.table.arrange(m.source)
	}
}

// press handles a key.
func (m *model) press(msg tea.KeyPressMsg) tea.Cmd {
	switch {
	case msg.String() == "ctrl+c":
		return tea.Quit
	case key.Matches(msg, m.keys.suspend):
		return tea.Suspend
	case m.editing:
		return m.pressInFilter(msg)
	case key.Matches(msg, m.keys.quit):
		if m.page != onTable {
			m.page = onTable
			return nil
		}
		return tea.Quit
	case key.Matches(msg, m.keys.pause):
		m.pause()
	case key.Matches(msg, m.keys.help):
		m.turnTo(onHelp)
	case m.page != onTable:
		m.pressOnPage(msg)
	default:
		m.pressOnTable(msg)
		m.rearrange()
	}
	return nil
}

// turnTo shows a page, or goes back to the table if it already shows that page.
func (m *model) turnTo(p page) {
	if m.page == p {
		p = onTable
	}
	m.page = p
	m.scroll = 0
}

// pause stops or resumes reading. Before it stops, it reads all rows and not only the visible ones: rows scrolled into
// view later must have values of the same look.
func (m *model) pause() {
	if m.source == nil {
		return
	}
	m.paused = !m.paused
	if m.paused {
		m.source.read(m.source.listed())
	}
}

func (m *model) pressOnPage(msg tea.KeyPressMsg) {
	switch page := max(1, m.height-1); {
	case key.Matches(msg, m.keys.clear, m.keys.open):
		m.page = onTable
	case key.Matches(msg, m.keys.up):
		m.scroll--
	case key.Matches(msg, m.keys.down):
		m.scroll++
	case key.Matches(msg, m.keys.pageUp):
		m.scroll -= page
	case key.Matches(msg, m.keys.pageDown):
		m.scroll += page
	case key.Matches(msg, m.keys.first):
		m.scroll = 0
	}
}

func (m *model) pressOnTable(msg tea.KeyPressMsg) {
	t := &m.table
	switch page := max(1, t.height); {
	case key.Matches(msg, m.keys.up):
		t.move(-1)
	case key.Matches(msg, m.keys.down):
		t.move(1)
	case key.Matches(msg, m.keys.pageUp):
		t.move(-page)
	case key.Matches(msg, m.keys.pageDown):
		t.move(page)
	case key.Matches(msg, m.keys.first):
		t.move(-len(t.shown))
	case key.Matches(msg, m.keys.last):
		t.move(len(t.shown))
	case key.Matches(msg, m.keys.left):
		m.columns.skip = max(0, m.columns.skip-1)
	case key.Matches(msg, m.keys.right):
		m.columns.skip = min(m.columns.skip+1, int(columns)-2)
	case key.Matches(msg, m.keys.next):
		t.sortBy((t.by+1)%columns, false)
	case key.Matches(msg, m.keys.previous):
		t.sortBy((t.by+columns-1)%columns, false)
	case key.Matches(msg, m.keys.turn):
		t.sortBy(t.by, !t.reverse)
	case key.Matches(msg, m.keys.filter):
		m.editing = true
		m.input.CursorEnd()
		m.input.Focus()
	case key.Matches(msg, m.keys.clear):
		m.input.Reset()
		m.applyFilter()
	case key.Matches(msg, m.keys.open):
		if r := t.current(); r != nil && r.group == nil {
			m.counter.Handle = r.handle()
			m.counter.Name = r.Counter.Name
			m.turnTo(onCounter)
			m.refresh()
		}
	}
}

// pressInFilter handles a key while the user edits the filter. The table follows each key.
func (m *model) pressInFilter(msg tea.KeyPressMsg) tea.Cmd {
	switch {
	case msg.String() == "enter":
		m.editing = false
		m.input.Blur()
		return nil
	case key.Matches(msg, m.keys.clear):
		m.editing = false
		m.input.Blur()
		m.input.Reset()
		m.applyFilter()
		m.rearrange()
		return nil
	}
	return m.edit(msg)
}

func (m *model) edit(msg tea.Msg) (cmd tea.Cmd) {
	m.input, cmd = m.input.Update(msg)
	m.applyFilter()
	m.rearrange()
	return cmd
}

func (m *model) applyFilter() {
	if filter := strings.ToLower(m.input.Value()); filter != m.table.filter {
		m.table.filter = filter
		m.table.changes = -1 // choose the rows again
	}
}
