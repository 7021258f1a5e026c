package top

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/shm"
)

// After random keys, sizes and looks the screen has exactly the size of the terminal, and the status line is its last
// row.
func TestFrameAlwaysFillsTheTerminal(t *testing.T) {
	s := shop(t)
	s.add(shm.Entry{Name: strings.Repeat("n", 63), Valid: true, Source: strings.Repeat("s", 63)}, 1<<64-1, 1<<64-1)
	s.add(shm.Entry{Name: "漢字の名前" + strings.Repeat("計", 15), Valid: true}, 9, 9)
	s.add(shm.Entry{Name: "👩👧👦e\u0301", Labels: map[string]string{"a": "👍🏽🇩🇪"}}, 9, 9)
	for i := range 200 {
		s.add(shm.Entry{Name: fmt.Sprint("flow-", i), Valid: i%7 != 0, Stale: i%11 == 0}, uint64(i)*1e9, uint64(i)*1e12)
	}
	s.publish()
	keys := []string{"up", "down", "pgup", "pgdown", "home", "end", "left", "right", "enter", "esc", "backspace", "space",
		"/", "?", "q", "r", "<", ">", "s", "S", "j", "k", "h", "l", "g", "G", "f", "b", "e", "漢", "\u200d", "-"}
	rapid.Check(t, func(rt *rapid.T) {
		c := s.newScreen(s.options(), 80, 24)
		defer c.close()
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0:
				c.Update(tea.WindowSizeMsg{Width: rapid.IntRange(1, 300).Draw(rt, "width"), Height: rapid.IntRange(1, 100).Draw(rt, "height")})
			case 1:
				s.pass(1, second/4, map[string][2]uint64{"web": {3, 300}, "flow-3": {1, 1}})
				c.look()
			case 2:
				c.Update(tea.ModeReportMsg{Mode: ansi.ModeUnicodeCore, Value: ansi.ModeReset})
			case 3:
				c.Update(tea.PasteMsg{Content: rapid.String().Draw(rt, "paste")})
			default:
				c.press(rapid.SampledFrom(keys).Draw(rt, "key"))
			}
			checkFrame(rt, c.model)
		}
	})
}

func checkFrame(t rapid.TB, m *model) {
	lines := strings.Split(m.frame(), "\n")
	if len(lines) != m.height {
		t.Fatalf("%d lines on %d rows", len(lines), m.height)
	}
	for i, line := range lines {
		if w := m.method.StringWidth(line); w != m.width {
			t.Fatalf("line %d has %d cells of %d: %q", i, w, m.width, line)
		}
	}
	if want := string(m.statusLine(nil)); lines[len(lines)-1] != want {
		t.Fatalf("the last row is %q, not %q", lines[len(lines)-1], want)
	}
}

func TestSortedWindowEqualsTheFullSort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 2000).Draw(t, "n")
		kinds := rapid.IntRange(1, 50).Draw(t, "kinds")
		seed := rapid.Uint32().Draw(t, "seed")
		var all []item
		for i := range n {
			seed = seed*1664525 + 1013904223
			all = append(all, item{key: float64(int(seed>>8) % kinds), has: seed>>28 != 0, place: i})
		}
		want := slices.Clone(all)
		slices.SortFunc(want, item.compare)
		from := rapid.IntRange(0, n).Draw(t, "from")
		to := rapid.IntRange(from, n).Draw(t, "to")
		sortWindow(all, from, to)
		if !slices.Equal(all[from:to], want[from:to]) {
			t.Fatalf("%d..%d of %d differ", from, to, n)
		}
	})
}

// This holds for unchanged entries, ordered by name and by rate.
func TestLookAllocatesNothing(t *testing.T) {
	s := shop(t)
	for i := range 3000 {
		s.add(shm.Entry{Name: fmt.Sprint("flow-", i), Valid: true}, uint64(i), uint64(i))
	}
	s.publish()
	for _, by := range []Column{Name, PacketRate, Trend, Source} {
		o := s.options()
		o.Sort = by
		c := s.newScreen(o, 200, 60)
		look := func() {
			s.now += second / 10
			c.source.follow()
			c.table.arrange(c.source)
		}
		look()
		if n := testing.AllocsPerRun(20, look); n != 0 {
			t.Errorf("by %s: %v allocations in a look", describe[by].name, n)
		}
	}
}

// A terminal without grapheme clusters shows a thumb and its skin color as four cells.
func TestTruncatedEmojisFit(t *testing.T) {
	for _, method := range []ansi.Method{ansi.WcWidth, ansi.GraphemeWidth} {
		for width := range 12 {
			for _, s := range []string{"👍🏽🇩🇪", "a👍🏽", "e\u0301👍🏽👍🏽", "👩\u200d👧\u200d👦👍🏽"} {
				if got := appendCell(nil, method, s, width, false); method.StringWidth(string(got)) != width {
					t.Errorf("method %d, %q in %d cells: %q", method, s, width, got)
				}
			}
		}
	}
}
