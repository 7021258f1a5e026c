package readrows

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/bench/cside"
	"github.com/flowtally/flowtally/internal/bench/rowtest"
	"github.com/flowtally/flowtally/internal/lab/need"
)

func TestRowsAreMeasured(t *testing.T) {
	if _, err := os.Stat("/dev/shm"); err != nil {
		need.Missing(t, "shm", err.Error())
	}
	rowtest.Measure(t, slices.DeleteFunc(Rows(""), func(r bench.Row) bool { return r.Peers != "" }))
}

// govpp, where its program was built, reads what the segment has: the row checks each sum.
func TestGovppReadsTheSegment(t *testing.T) {
	bin := os.Getenv("FLOWTALLY_BIN")
	if _, err := os.Stat(filepath.Join(bin, vppReader)); err != nil {
		t.Log(err) // make bench builds it
		return
	}
	sides, err := openVPP(bin)(t.Context(), bench.Env{})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if ns, err := sides.Ref(t.Context(), 10); err != nil || ns <= 0 {
			t.Errorf("%v ns, %v", ns, err)
		}
	}
	if err := sides.Close(); err != nil {
		t.Error(err)
	}
}

// A segment with other values is refused.
func TestGovppRefusesAnotherSum(t *testing.T) {
	bin := os.Getenv("FLOWTALLY_BIN")
	if _, err := os.Stat(filepath.Join(bin, vppReader)); err != nil {
		t.Log(err) // make bench builds it
		return
	}
	var open bench.Closers
	socket, err := serveVPP(&open)
	if err != nil {
		t.Fatal(err)
	}
	peer, err := cside.Start(&open, filepath.Join(bin, vppReader), socket, vppName, "1")
	if err != nil {
		t.Fatal(err)
	}
	if err := peer.Ready(vppPatience); err != nil {
		t.Fatal(err)
	}
	if _, err := peer.Ask("govpp", 1); err == nil || !strings.Contains(err.Error(), "1 were written") {
		t.Errorf("got %v", err)
	}
	_ = open.Close() // the program has ended with 1
}

// A side that reads other values than were written has no figure.
func TestOtherSumEndsTheRow(t *testing.T) {
	side := reading(bench.ThreadCPU, func() (uint64, error) { return total() - 1, nil })
	if _, err := side(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "packets were read") {
		t.Errorf("got %v", err)
	}
}
