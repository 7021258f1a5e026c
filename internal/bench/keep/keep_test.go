package keep_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/bench/keep"
)

// rows of a bench that has no other.
func rows() []bench.Row {
	return []bench.Row{
		{Name: "a.one", Ours: "a read", Ref: "three loads", Bound: 2},
		{Name: "a.two", Ours: "a flow", Ref: "a | b", Unit: "bytes per flow"},
		{Name: "b", Ours: "a cycle", Ref: "a copy"},
	}
}

func zen4() bench.Machine {
	return bench.Machine{
		CPU:         "AMD EPYC",
		CPUs:        2,
		Kernel:      "6.18",
		Vendor:      "AuthenticAMD",
		Family:      25,
		Model:       17,
		Mitigations: []string{"retbleed: Vulnerable", "spec_rstack_overflow: Mitigation: Safe RET", "spectre_v2: Mitigation: Enhanced / Automatic IBRS"},
	}
}

func result(row bench.Row, ratio float64, noisy bool) bench.Result {
	ours, ref := 10*ratio, 10.0
	return bench.Result{Name: row.Name, Ref: row.Ref, Ours: &ours, RefNS: &ref, Ratio: &ratio, Noisy: noisy}
}

// day runs a bench on the day d that gave results.
func day(t *testing.T, dir string, d int, known []bench.Row, results ...bench.Result) keep.File {
	t.Helper()
	run := keep.Run{Time: time.Date(2026, 11, d, 12, 0, 0, 0, time.UTC), Commit: fmt.Sprintf("c%d", d)}
	path, err := keep.AddRows(dir, known, &bench.Report{Machine: zen4(), Results: results}, run)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(dir, "zen-4.json"); path != want {
		t.Errorf("kept in %s, want %s", path, want)
	}
	files, err := keep.Read(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("%v: %+v", err, files)
	}
	return files[0]
}

func TestNewestFigureOfEachRowStays(t *testing.T) {
	dir := t.TempDir()
	all := rows()
	unmeasured := bench.Result{Name: "a.one", Ref: all[0].Ref, Reason: "noise"}
	other := rows()
	other[1].Ref = "another floor"
	for d, tt := range []struct {
		name    string
		known   []bench.Row
		results []bench.Result
		want    string // name, ratio, commit and whether it is noisy
	}{
		{"the first run", all, []bench.Result{result(all[1], 2, false), result(all[0], 1, false)}, "a.one 1 c0, a.two 2 c0"},
		{"a run of one row", all, []bench.Result{result(all[0], 3, false)}, "a.one 3 c1, a.two 2 c0"},
		{"a row without figures", all, []bench.Result{unmeasured}, "a.one 3 c1, a.two 2 c0"},
		{"rows that were disturbed", all, []bench.Result{result(all[0], 4, true), result(all[2], 5, true)}, "a.one 3 c1, a.two 2 c0, b 5 c3 noisy"},
		{"disturbed again", all, []bench.Result{result(all[2], 6, true)}, "a.one 3 c1, a.two 2 c0, b 6 c4 noisy"},
		{"not disturbed", all, []bench.Result{result(all[2], 7, false)}, "a.one 3 c1, a.two 2 c0, b 7 c5"},
		{"another reference", other, nil, "a.one 3 c1, b 7 c5"},
		{"a row that is gone", all[:1], nil, "a.one 3 c1"},
	} {
		var got []string
		for _, f := range day(t, dir, d, tt.known, tt.results...).Rows {
			text := fmt.Sprintf("%s %v %s", f.Name, f.Ratio, f.Commit)
			if f.Noisy {
				text += " noisy"
			}
			got = append(got, text)
		}
		if got := strings.Join(got, ", "); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestPointsAndRowsStayBesideEachOther(t *testing.T) {
	dir := t.TempDir()
	point := bench.Row{Name: "plot.1", Ref: "empty"}
	day(t, dir, 1, rows(), result(rows()[0], 1, false))
	if _, err := keep.AddPoints(dir, []bench.Row{point}, &bench.Report{Machine: zen4(), Results: []bench.Result{result(point, 2, false)}}, keep.Run{}); err != nil {
		t.Fatal(err)
	}
	f := day(t, dir, 2, rows(), result(rows()[0], 3, false))
	if len(f.Points) != 1 || f.Points[0].Ratio != 2 || len(f.Rows) != 1 || f.Rows[0].Ratio != 3 {
		t.Errorf("kept %+v", f)
	}
}

// TestKeptFileBelongsToTheOwnerOfItsDirectory: make bench runs as root.
func TestKeptFileBelongsToTheOwnerOfItsDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, who may give files away")
	}
	dir := t.TempDir()
	if err := os.Chown(dir, 1234, 2345); err != nil {
		t.Fatal(err)
	}
	for d := range 2 { // a new file, and one that is replaced
		day(t, dir, 1+d, rows(), result(rows()[0], 1, false))
		info, err := os.Stat(filepath.Join(dir, "zen-4.json"))
		if err != nil {
			t.Fatal(err)
		}
		if owner := info.Sys().(*syscall.Stat_t); owner.Uid != 1234 || owner.Gid != 2345 || info.Mode() != 0o644 {
			t.Errorf("owner %d, group %d, mode %v", owner.Uid, owner.Gid, info.Mode())
		}
	}
	if err := keep.Check(dir); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v: %v are left", err, left)
	}
}

func TestPageIsMadeOfTheKeptFigures(t *testing.T) {
	dir := t.TempDir()
	all := rows()
	day(t, dir, 1, all, result(all[0], 1.5, false), result(all[1], 2, true))
	f := day(t, dir, 2, all, result(all[2], 0.5, false))
	text := `Text stays.

<!-- table of machines -->
<!-- end of table -->
<!-- table of rows b* -->

old
<!-- end of table -->
<!-- table of rows * a.two -->

<!-- end of table -->
`
	text = strings.ReplaceAll(text, "machines -->\n<", "machines -->\n\n<")
	want := `Text stays.

<!-- table of machines -->

| column | processor | CPUs | Linux | protected | measured |
| --- | --- | ---: | --- | --- | --- |
| Zen 4 | AMD EPYC, family 25, model 17, stepping 0 | 2 | 6.18 | ` + "`spec_rstack_overflow`" + ` | 2026-11-01 to 2026-11-02 |

<!-- end of table -->
<!-- table of rows b* -->

| row | ours | against | bound | Zen 4 |
| --- | --- | --- | ---: | --- |
| ` + "`b`" + ` | a cycle | a copy |  | **0.50** (5.00 ns / 10.00 ns) |

<!-- end of table -->
<!-- table of rows * a.two -->

| row | ours | against | bound | Zen 4 |
| --- | --- | --- | ---: | --- |
| ` + "`a.one`" + ` | a read | three loads | 2 | **1.50** (15.00 ns / 10.00 ns) |
| ` + "`a.two`" + ` | a flow | a \| b |  | **2.00** (20 B / 10 B) noisy |

<!-- end of table -->
`
	got, err := keep.Page(text, all, []keep.File{f})
	if err != nil || got != want {
		t.Fatalf("%v: got\n%s\nwant\n%s", err, got, want)
	}
	if again, err := keep.Page(got, all, []keep.File{f}); err != nil || again != got {
		t.Errorf("%v: the page made of itself differs:\n%s", err, again)
	}

	if _, err := keep.Page("<!-- table of rows a.* -->\n\n<!-- end of table -->\n", all, nil); err == nil || !strings.Contains(err.Error(), "row b: no table of the page takes it") {
		t.Errorf("a row without a table: %v", err)
	}
	all[0].Ours = ""
	if _, err := keep.Page(text, all, nil); err == nil || !strings.Contains(err.Error(), "row a.one: it has no text") {
		t.Errorf("a row without a text: %v", err)
	}
}
