package top

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/cmd/internal/selection"
	"github.com/flowtally/flowtally/shm"
)

// shop is a mirror of four flows and a completion counter, of which three count.
func shop(t *testing.T) *stage {
	s := newStage(t)
	s.add(shm.Entry{Name: "web", Source: "xdp eth0 native", ByteBasis: "l2", Valid: true, Labels: map[string]string{"team": "shop"}, Text: "ingress on any: tcp dport 443"}, 1_000_000, 64_000_000)
	s.add(shm.Entry{Name: "dns", Source: "rdma mlx5_0", ByteBasis: "l2", Valid: true, Labels: map[string]string{"team": "ops"}}, 5000, 400_000)
	s.add(shm.Entry{Name: "idle", Source: "xdp eth0 native", Valid: true}, 7, 420)
	s.add(shm.Entry{Name: "broken", Source: "xdp eth1 generic", Valid: false, Continuity: shm.Continuity{Discontinuities: 2}}, 80, 8000)
	s.add(shm.Entry{Name: "near-sent", Kind: shm.KindCompletion, Unit: "completions", Source: "rdma rxe0 cq", Valid: true}, 300, 2)
	s.pass(4, second, map[string][2]uint64{"web": {1000, 64_000}, "dns": {50, 4000}, "near-sent": {10, 0}})
	return s
}

// The rates come from the history.
func TestFirstLookHasRates(t *testing.T) {
	s := shop(t)
	c := s.newScreen(s.options(), 120, 12)
	text := ansi.Strip(c.frame())
	for _, want := range []string{"web", " 1.00k ", "512.00k", "1,004,000", "xdp eth0 native", " 10 ", "2 errors", "invalid, 2 dis"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// A rate disappears when no new sample comes, and when a total goes back.
func TestRateIsOfTheLastTwoSamples(t *testing.T) {
	s := shop(t)
	c := s.newScreen(s.options(), 100, 12)
	rate := func() (float64, bool) {
		r := c.source.rowByIndex[s.handles["web"].Index]
		return r.PacketsPerSec, r.HasRate
	}
	s.now += second
	s.count("web", 500, 32000)
	s.publish()
	c.look()
	if v, ok := rate(); !ok || v != 500 {
		t.Errorf("rate %v %v, want 500", v, ok)
	}
	c.look() // no new sample
	if v, ok := rate(); !ok || v != 500 {
		t.Errorf("without a new sample: %v %v, want 500", v, ok)
	}
	s.now += 3 * second
	c.look()
	if _, ok := rate(); ok {
		t.Error("a rate from an old sample")
	}
	s.values[s.handles["web"]] = shm.Value{Packets: 1, Bytes: 1}
	s.publish()
	c.look()
	if _, ok := rate(); ok {
		t.Error("a rate across a total that went back")
	}
}

func TestRowsSortByEachColumnAndReversed(t *testing.T) {
	s := shop(t)
	c := s.newScreen(s.options(), 200, 20)
	for column, want := range map[Column]string{
		Name:       "[broken dns idle near-sent web]",
		PacketRate: "[web dns near-sent broken idle]",
		BitRate:    "[web dns broken idle near-sent]",
		Packets:    "[web dns near-sent broken idle]",
		Source:     "[dns near-sent idle web broken]",
		Note:       "[broken dns idle near-sent web]",
		Trend:      "[web dns near-sent broken idle]",
	} {
		c.table.sortBy(column, false)
		c.look()
		if got := c.names(); got != want {
			t.Errorf("by %s: %s, want %s", describe[column].name, got, want)
		}
		c.press("r")
		first := strings.Fields(strings.Trim(want, "[]"))
		if got := c.names(); describe[column].byEntry && !strings.HasSuffix(got, first[0]+"]") {
			t.Errorf("by %s reversed: %s", describe[column].name, got)
		}
	}
	c.table.sortBy(PacketRate, true)
	c.look()
	// Rows without a rate stay last.
	if got := c.names(); got != "[near-sent dns web broken idle]" {
		t.Errorf("reversed: %s", got)
	}
	c.press(">")
	if c.table.by != BitRate || c.table.reverse {
		t.Errorf("> leads to column %d", c.table.by)
	}
	c.press("<", "<")
	if c.table.by != Name {
		t.Errorf("< leads to column %d", c.table.by)
	}
}

// It searches names, labels and sources. Esc ends it.
func TestFilterAppliesWhileItIsTyped(t *testing.T) {
	s := shop(t)
	c := s.newScreen(s.options(), 100, 12)
	for text, want := range map[string]string{
		"e": "[broken dns idle near-sent web]", "WEB": "[web]", "team=ops": "[dns]", "eth1": "[broken]", "zzz": "[]",
	} {
		c.press("/")
		for _, r := range text {
			c.press(string(r))
		}
		if got := c.names(); got != want && text != "e" {
			t.Errorf("filter %q: %s, want %s", text, got, want)
		}
		if !strings.Contains(ansi.Strip(c.frame()), "filter: "+text) {
			t.Errorf("no filter %q in\n%s", text, ansi.Strip(c.frame()))
		}
		c.press("enter")
		if c.editing || !strings.Contains(ansi.Strip(c.frame()), "of 5 counters") && text != "e" {
			t.Errorf("after enter:\n%s", ansi.Strip(c.frame()))
		}
		c.press("esc")
		if len(c.table.shown) != 5 {
			t.Errorf("after esc: %s", c.names())
		}
	}
	c.press("/", "q") // a key of the table is text here
	if !c.editing || c.input.Value() != "q" {
		t.Errorf("q in a filter: %q", c.input.Value())
	}
}

// All rows stay at the values of one look, even rows that scroll into view later.
func TestPauseFreezesTheValues(t *testing.T) {
	s := shop(t)
	c := s.newScreen(s.options(), 100, 3) // one row
	c.press("space")
	s.pass(1, second, map[string][2]uint64{"web": {77, 77}})
	c.look().press("end")
	if text := ansi.Strip(c.frame()); !strings.Contains(text, "PAUSED") || !strings.Contains(text, "1,004,000") {
		t.Errorf("paused:\n%s", text)
	}
	c.press("space").look()
	if text := ansi.Strip(c.frame()); strings.Contains(text, "PAUSED") || !strings.Contains(text, "1,004,077") {
		t.Errorf("goes on:\n%s", text)
	}
}

// In between, the page says that the counter was removed.
func TestCounterPageFollowsACounterThatIsAddedAgain(t *testing.T) {
	s := shop(t)
	c := s.newScreen(s.options(), 80, 24)
	c.press("end", "enter")
	text := ansi.Strip(c.frame())
	for _, want := range []string{"web", "1,004,000", "tcp dport 443", "team=shop", "xdp eth0 native", "slot 0, generation 1", "highest 1.00k/s"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	s.remove("web")
	if text := ansi.Strip(c.look().frame()); !strings.Contains(text, "was removed") {
		t.Errorf("removed:\n%s", text)
	}
	s.add(shm.Entry{Name: "web", Valid: true, Source: "sim"}, 5, 5)
	s.publish()
	if text := ansi.Strip(c.look().frame()); !strings.Contains(text, "sim") || strings.Contains(text, "was removed") {
		t.Errorf("added again:\n%s", text)
	}
	if c.press("esc").page != onTable || c.press("?").page != onHelp || c.press("q").page != onTable {
		t.Error("the keys do not lead back")
	}
}

// On the way counters are added and removed, the writer dies, and the old file is truncated.
func TestTopFollowsTheMirrorIntoANewFile(t *testing.T) {
	s := shop(t)
	c := s.newScreen(s.options(), 100, 12)
	s.add(shm.Entry{Name: "new", Valid: true}, 1, 1)
	s.remove("idle")
	s.publish()
	if got := c.look().names(); got != "[broken dns near-sent new web]" {
		t.Errorf("rows %s", got)
	}
	s.w.Heartbeat(shm.Now() - 100*3600*second)
	text := ansi.Strip(c.look().frame())
	if !strings.Contains(text, "WRITER dead, last heartbeat 4d ago") || !strings.Contains(text, "stale") {
		t.Errorf("dead:\n%s", text)
	}
	entries, err := c.source.reader.Entries()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(s.path, 100); err != nil {
		t.Fatal(err)
	}
	text = ansi.Strip(c.look().frame())
	if !strings.Contains(text, "cannot be read: mirror is truncated") || !strings.Contains(text, "web") {
		t.Errorf("cut short:\n%s", text)
	}
	if err := s.w.Remake(entries); err != nil {
		t.Fatal(err)
	}
	s.w.SetState(shm.Run)
	s.publish()
	for end := time.Now().Add(patience); c.source.in.Reader() == c.source.reader; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) { // the instance looks at the name by itself
			t.Fatal("the new file was not found")
		}
	}
	if text := ansi.Strip(c.look().frame()); !strings.Contains(text, "writer run") || c.names() != "[broken dns near-sent new web]" {
		t.Errorf("made anew:\n%s", text)
	}
}

// Any other error ends the program.
func TestTopWaitsForAMissingMirror(t *testing.T) {
	s := newStage(t)
	o := s.options()
	o.Path = s.path
	away := s.path + ".away"
	if err := os.Rename(s.path, away); err != nil {
		t.Fatal(err)
	}
	c := s.newScreen(o, 60, 8)
	if text := ansi.Strip(c.frame()); !strings.Contains(text, "waiting for the mirror") {
		t.Errorf("missing:\n%s", text)
	}
	c.press("down", "enter", "space", "/", "x", "esc", "?", "?", ">")
	if err := os.Rename(away, s.path); err != nil {
		t.Fatal(err)
	}
	c.Update(c.open())
	if text := ansi.Strip(c.frame()); !strings.Contains(text, "writer run") {
		t.Errorf("there:\n%s", text)
	}
	c.Update(openedMsg{err: shm.ErrFormat})
	if c.failed != shm.ErrFormat {
		t.Errorf("a file that is no mirror: %v", c.failed)
	}
}

// No name, label, source or text in a mirror may write a control character to the terminal.
func TestHostileNamesAreQuoted(t *testing.T) {
	s := newStage(t)
	bad := "\x1b]0;x\x07\u202ea\x9b31m"
	harmless := strings.Repeat("H", len(bad))
	s.add(shm.Entry{Name: harmless, Source: harmless, Text: harmless, Labels: map[string]string{"k": harmless}}, 1, 1)
	s.publish()
	f, err := os.OpenFile(s.path, os.O_RDWR, 0) // the writer refuses such names; the owner of a file need not
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	for at := bytes.Index(data, []byte(harmless)); at >= 0; at = bytes.Index(data, []byte(harmless)) {
		copy(data[at:], bad)
		if _, err := f.WriteAt([]byte(bad), int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	c := s.newScreen(s.options(), 80, 24)
	check := func() {
		t.Helper()
		text := ansi.Strip(c.frame())
		if strings.ContainsAny(text, "\x1b\x07\u202e\u009b\r\t") || !strings.Contains(text, `"\x1b]0;x\a`) {
			t.Errorf("%q", text)
		}
	}
	check()
	c.press("enter")
	check()
}

// The rate of a sum needs the same counters at both looks.
func TestSumsHaveARowForEachLabelValue(t *testing.T) {
	s := shop(t)
	s.add(shm.Entry{Name: "web2", Valid: true, ByteBasis: "l2", Labels: map[string]string{"team": "shop"}}, 10, 1000)
	s.publish()
	o := s.options()
	var err error
	if o.Sum, err = selection.New(nil, selection.Options{SumBy: []string{"team"}}); err != nil {
		t.Fatal(err)
	}
	c := s.newScreen(o, 120, 12)
	s.pass(1, second, map[string][2]uint64{"web": {300, 3000}, "web2": {200, 2000}})
	text := ansi.Strip(c.look().frame())
	if got := c.names(); got != "[!team !team team=ops team=shop]" { // of flows, and of completions
		t.Errorf("rows %s in\n%s", got, text)
	}
	for _, want := range []string{" team=shop ", " 500 ", "1,004,510", "2 counters", "4 sums"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	s.remove("web2")
	s.pass(1, second, map[string][2]uint64{"web": {1, 1}})
	c.look()
	for _, r := range c.table.window {
		if r.Counter.Name == "team=shop" && (r.HasRate || r.Counter.Packets != 1_004_301) {
			t.Errorf("after a member was removed: %+v", r.Counter)
		}
	}
	c.press("enter", "r", ">", "space", "space", "/", "x", "enter", "?")
	checkFrame(t, c.model)
}

// Each look reads the values. With ten looks a second, a screen of 12,000 cells is drawn every fourth time. A key
// draws it at once, and so does the last look of Count.
func TestLargeScreensAreDrawnLessOften(t *testing.T) {
	for _, c := range []struct {
		width, height int
		interval      time.Duration
		every         int
	}{
		{80, 24, 100 * time.Millisecond, 1},
		{200, 60, 100 * time.Millisecond, 4},
		{200, 60, time.Second, 1},
		{1000, 500, 100 * time.Millisecond, 10}, // once a second
		{1000, 500, 5 * time.Second, 1},
	} {
		s := shop(t)
		o := s.options()
		o.Interval, o.Sort, o.Count = c.interval, PacketRate, 12
		screen := s.newScreen(o, c.width, c.height) // the first look
		screen.View()
		for look := 2; look <= o.Count; look++ {
			before := screen.drawn
			s.pass(1, int64(c.interval), map[string][2]uint64{"web": {uint64(look), 1}})
			screen.look().View()
			if got, want := screen.drawn != before, (look-1)%c.every == 0 || look == o.Count; got != want {
				t.Errorf("%dx%d each %v: look %d drawn %v, want %v", c.width, c.height, c.interval, look, got, want)
			}
			if row := screen.source.rowByIndex[s.handles["web"].Index]; row.value.SampledAt != s.now {
				t.Errorf("%dx%d each %v: look %d did not read the values", c.width, c.height, c.interval, look)
			}
			if look == 3 {
				screen.press("j").View()
				if !strings.Contains(ansi.Strip(screen.drawn), format.Count(1_004_000+2+3)) {
					t.Errorf("%dx%d each %v: a key does not draw the values of the latest look:\n%s", c.width, c.height, c.interval, ansi.Strip(screen.drawn))
				}
			}
		}
	}
}
