package toprows

import (
	"context"
	"fmt"
	"time"

	"github.com/flowtally/flowtally/internal/bench"
)

const (
	counters = 4096
	period   = 100 * time.Millisecond // between two looks
	looks    = 8                      // in one round: two drawings of the large screen, which is drawn at every fourth look
)

// firstText is on the first screen, and on each one after it.
const firstText = "writer run"

// terminals are the sizes of the terminal, in cells, and the row of each.
var terminals = []struct {
	row           string
	width, height uint16
}{
	{"top.4k", 80, 24},
	{"top.4k.200x60", 200, 60},
}

// Rows returns the rows of top. bin is the directory of the program flowtally.
func Rows(bin string) []bench.Row {
	var rows []bench.Row
	for _, t := range terminals {
		rows = append(rows, bench.Row{
			Name:     t.row,
			Ours:     fmt.Sprintf("CPU time of a look of `flowtally top --sort rate` at 4,096 counters, ten a second, %dx%d", t.width, t.height),
			Ref:      "a program that reads the counters, orders them and writes the whole screen",
			Bound:    6.0, // the terminal library compares and draws each cell
			Unit:     "ns of CPU time per look at 10 Hz",
			Rounds:   9, // each takes 1.6 s
			Openings: 1,
			Time:     30 * time.Second,
			Open:     func(context.Context, bench.Env) (*bench.Sides, error) { return open(bin, t.width, t.height) },
		})
	}
	return rows
}
