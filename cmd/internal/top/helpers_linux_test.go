package top

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/flowtally/flowtally/shm"
)

const second = int64(time.Second)

// stage is a mirror with a clock. The test chooses all values and times.
type stage struct {
	t       testing.TB
	path    string
	w       *shm.Writer
	handles map[string]shm.Handle
	values  map[shm.Handle]shm.Value
	now     int64
}

// newStage creates a mirror without counters.
func newStage(t testing.TB) *stage {
	t.Helper()
	s := &stage{t: t, path: filepath.Join(t.TempDir(), "m", "stage.mirror"), now: 1000 * second,
		handles: map[string]shm.Handle{}, values: map[shm.Handle]shm.Value{}}
	s.create()
	t.Cleanup(func() { s.w.Close() })
	return s
}

func (s *stage) create() {
	s.t.Helper()
	w, err := shm.Create(shm.Options{Path: s.path, History: 4096, HeartbeatPeriod: time.Hour, CoolDown: -1})
	if err != nil {
		s.t.Fatal(err)
	}
	w.SetState(shm.Run)
	s.w = w
}

// add adds a counter with the value (packets, bytes).
func (s *stage) add(e shm.Entry, packets, bytes uint64) {
	s.t.Helper()
	if e.Kind == "" {
		e.Kind = "flow"
	}
	h, err := s.w.Add(e)
	if err != nil {
		s.t.Fatal(err)
	}
	s.handles[e.Name] = h
	s.values[h] = shm.Value{Packets: packets, Bytes: bytes}
}

func (s *stage) remove(name string) {
	s.t.Helper()
	h := s.handles[name]
	if err := s.w.Remove(h); err != nil {
		s.t.Fatal(err)
	}
	delete(s.handles, name)
	delete(s.values, h)
}

// count adds to the value of a counter.
func (s *stage) count(name string, packets, bytes uint64) {
	h := s.handles[name]
	v := s.values[h]
	s.values[h] = shm.Value{Packets: v.Packets + packets, Bytes: v.Bytes + bytes, SampledAt: v.SampledAt}
}

// publish publishes all values with the current time, and adds the named counters to the history.
func (s *stage) publish(history ...string) {
	s.w.BeginCycle()
	blocks := map[int]*shm.Block{}
	for h, v := range s.values {
		v.SampledAt = s.now
		s.values[h] = v
		n := int(h.Index / shm.BlockLen)
		if blocks[n] == nil {
			blocks[n] = new(shm.Block)
		}
		blocks[n][h.Index%shm.BlockLen] = v
	}
	for n, b := range blocks {
		s.w.PublishBlock(n, b)
	}
	for _, name := range history {
		s.w.AppendHistory(s.handles[name], s.values[s.handles[name]])
	}
	s.w.EndCycle(s.now)
	s.w.Heartbeat(shm.Now())
}

// pass lets time pass, counts, and publishes with history, n times.
func (s *stage) pass(n int, every int64, counts map[string][2]uint64) {
	for range n {
		s.now += every
		var names []string
		for name, c := range counts {
			s.count(name, c[0], c[1])
			names = append(names, name)
		}
		s.publish(names...)
	}
}

func (s *stage) options() Options {
	return Options{
		Path: s.path, Interval: time.Second, Now: func() int64 { return s.now },
		Open: func() (*shm.Instance, error) { return shm.OpenPath(s.path) },
	}
}

// screen is a model that the test drives by messages.
type screen struct {
	*model
	t testing.TB
}

// newScreen opens the mirror and makes the first look.
func (s *stage) newScreen(o Options, width, height int) *screen {
	s.t.Helper()
	m := newModel(o)
	s.t.Cleanup(m.close)
	c := &screen{m, s.t}
	c.Update(tea.WindowSizeMsg{Width: width, Height: height})
	c.Update(m.open())
	return c
}

// press sends keys, as bubbletea names them; other texts are typed.
func (c *screen) press(keys ...string) *screen {
	for _, k := range keys {
		c.Update(keyPress(k))
	}
	return c
}

func keyPress(k string) tea.KeyPressMsg {
	codes := map[string]rune{
		"up": tea.KeyUp, "down": tea.KeyDown, "pgup": tea.KeyPgUp, "pgdown": tea.KeyPgDown, "home": tea.KeyHome, "end": tea.KeyEnd,
		"left": tea.KeyLeft, "right": tea.KeyRight, "enter": tea.KeyEnter, "esc": tea.KeyEscape, "backspace": tea.KeyBackspace,
	}
	switch {
	case codes[k] != 0:
		return tea.KeyPressMsg{Code: codes[k]}
	case k == "space":
		return tea.KeyPressMsg{Code: ' ', Text: " "}
	}
	return tea.KeyPressMsg{Code: []rune(k)[0], Text: k}
}

// look makes a look.
func (c *screen) look() *screen {
	c.Update(lookMsg{})
	return c
}

// names are the rows on the screen.
func (c *screen) names() string {
	var names []string
	for _, r := range c.table.window {
		names = append(names, r.Counter.Name)
	}
	return fmt.Sprint(names)
}
