package toprows

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/shm"
)

// floorName is the name of the floor among bench.Floors.
const floorName = "top"

// Floors are the programs that the rows start.
func Floors() map[string]bench.Floor { return map[string]bench.Floor{floorName: runFloor} }

// cellsPerSecond is how much flowtally top draws. The floor draws as often.
const cellsPerSecond = 30_000

// plainTop is a top as somebody would write it by hand: it reads every counter, keeps the highest rates, formats them by
// strconv, and writes the whole screen at once.
type plainTop struct {
	names         []string
	handles       []shm.Handle
	width, height int

	before, now shm.Snapshot
	first       []plainRow // the rows on the screen, of the highest rate first
	screen      []byte
}

type plainRow struct {
	at   int // in the snapshot
	rate float64
}

// runFloor takes the path of a mirror, and the width and the height of the terminal on standard output.
func runFloor(args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("got %d arguments in place of a mirror, a width and a height", len(args))
	}
	width, err := strconv.Atoi(args[1])
	if err != nil {
		return fmt.Errorf("reading the width: %w", err)
	}
	height, err := strconv.Atoi(args[2])
	if err != nil {
		return fmt.Errorf("reading the height: %w", err)
	}
	reader, err := shm.OpenReader(args[0])
	if err != nil {
		return err
	}
	defer reader.Close()
	entries, err := reader.Entries()
	if err != nil {
		return err
	}
	t := &plainTop{width: width, height: height}
	for _, e := range entries {
		t.names = append(t.names, e.Name)
		t.handles = append(t.handles, e.Handle)
	}

	perDrawing := max(1, (width*height+int(cellsPerSecond*period.Seconds())-1)/int(cellsPerSecond*period.Seconds()))
	tick := time.NewTicker(period)
	defer tick.Stop()
	for look := 0; ; look++ {
		if err := t.look(reader); err != nil {
			return err
		}
		if look%perDrawing == 0 {
			if err := t.draw(os.Stdout); err != nil {
				return err
			}
		}
		<-tick.C
	}
}

// look reads all counters, and keeps those of the look before.
func (t *plainTop) look(r *shm.Reader) error {
	t.before, t.now = t.now, t.before
	return r.SnapshotOf(&t.now, t.handles)
}

// draw writes the counters of the highest rates, and the last line of the screen.
func (t *plainTop) draw(to io.Writer) error {
	t.first = t.first[:0]
	for i, v := range t.now.List {
		rate := 0.0
		if i < len(t.before.List) {
			was := t.before.List[i]
			rate = float64(v.Packets-was.Packets) * 1e9 / float64(max(1, v.SampledAt-was.SampledAt))
		}
		t.place(plainRow{i, rate})
	}

	t.screen = append(t.screen[:0], "\x1b[H"...)
	for _, r := range t.first {
		start := len(t.screen)
		v := t.now.List[r.at]
		t.screen = append(t.screen, t.names[r.at]...)
		for _, rate := range []float64{r.rate, 8 * r.rate * float64(v.Bytes) / float64(max(1, v.Packets))} {
			t.screen = append(t.screen, ' ')
			t.screen = strconv.AppendFloat(t.screen, rate, 'f', 1, 64)
		}
		for _, n := range []uint64{v.Packets, v.Bytes, uint64(shm.Now() - v.SampledAt)} {
			t.screen = append(t.screen, ' ')
			t.screen = strconv.AppendUint(t.screen, n, 10)
		}
		t.screen = append(t.fill(start), "\r\n"...)
	}
	start := len(t.screen)
	t.screen = append(t.screen, firstText...)
	t.screen = t.fill(start)
	_, err := to.Write(t.screen)
	return err
}

// place puts a row among the first, if its rate is high enough.
func (t *plainTop) place(r plainRow) {
	if len(t.first) < t.height-1 {
		t.first = append(t.first, r)
	} else if t.first[len(t.first)-1].rate >= r.rate {
		return
	}
	at := len(t.first) - 1
	for ; at > 0 && t.first[at-1].rate < r.rate; at-- {
		t.first[at] = t.first[at-1]
	}
	t.first[at] = r
}

// fill makes the text from start on as long as a line of the terminal.
func (t *plainTop) fill(start int) []byte {
	for len(t.screen)-start < t.width {
		t.screen = append(t.screen, ' ')
	}
	return t.screen[:start+t.width]
}
