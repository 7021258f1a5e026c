package bench

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
)

func TestSelectTakesTheRowsThatPatternsMatchInTheirOrder(t *testing.T) {
	rows := []Row{{Name: "shm.read"}, {Name: "shm.read.c"}, {Name: "xdp.one"}}
	for _, tt := range []struct {
		patterns []string
		want     string
		err      error
	}{
		{nil, "shm.read shm.read.c xdp.one", nil},
		{[]string{"xdp.one", "shm.read"}, "shm.read xdp.one", nil},
		{[]string{"shm.*"}, "shm.read shm.read.c", nil},
		{[]string{"shm.raed"}, "", ErrNoRow},
	} {
		got, err := Select(rows, tt.patterns)
		var names []string
		for _, r := range got {
			names = append(names, r.Name)
		}
		if strings.Join(names, " ") != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("Select(%q) = %q, %v; want %q, %v", tt.patterns, names, err, tt.want, tt.err)
		}
	}
	if _, err := Select(rows, []string{"["}); err == nil {
		t.Error("an invalid pattern was taken")
	}
}

func TestBriefLeavesLongRowsOut(t *testing.T) {
	rows := []Row{{Name: "a"}, {Name: "b", Full: true}, {Name: "c"}}
	got := Brief(rows)
	if len(got) != 2 || got[0].Name != "a" || got[1].Name != "c" || rows[1].Name != "b" {
		t.Errorf("%v of %v", got, rows)
	}
}

// TestPeersAreAskedFor: a row that compares with a program of others is not measured without the option, and no gate
// fails for it; with the option it is measured.
func TestPeersAreAskedFor(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs CPU affinity: Linux")
	}
	row := Row{Name: "a", Ref: "b", Bound: 1, Peers: "nft", Open: func(context.Context, Env) (*Sides, error) {
		return nil, errors.New("opened")
	}}
	for _, peers := range []bool{false, true} {
		report, err := Run(t.Context(), []Row{row}, Options{Peers: peers, Anywhere: true})
		if err != nil {
			t.Fatal(err)
		}
		r := report.Results[0]
		if opened := r.Reason == "opened"; r.Ratio != nil || opened != peers || len(report.Missed(false)) != map[bool]int{false: 0, true: 1}[peers] {
			t.Errorf("peers %t: %q, misses %q", peers, r.Reason, report.Missed(false))
		}
	}
}
