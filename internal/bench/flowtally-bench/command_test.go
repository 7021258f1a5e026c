package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/bench/keep"
	"github.com/flowtally/flowtally/internal/lab/golden"
	"github.com/flowtally/flowtally/internal/lab/schema"
)

//go:generate go test -run TestSchemaKeepsItsFields -update

var update = flag.Bool("update", false, "write the schema anew; no field is ever removed there")

// schemaFile is the schema of -o json.
const schemaFile = "testdata/schema.json"

// bounds are the required bounds of the rows.
var bounds = map[string]float64{
	"shm.read":                     2.0,
	"shm.read.c":                   1.6,
	"shm.read.busy":                1.2,
	"shm.snapshot.16k":             1.3,
	"shm.snapshot.256k":            1.15,
	"shm.publish":                  2.3,
	"shm.visible":                  1.6,
	"shm.wait":                     1.4,
	"shm.wait.crowd":               1.05,
	"shm.wait.member":              1.05,
	"shm.wait.idle":                1.2,
	"shm.wait.idle.busy":           2.0,
	"xdp.hand.match":               1.5,
	"xdp.hand.miss":                1.5,
	"xdp.hand.arp":                 1.5,
	"xdp.one":                      0,
	"xdp.exact.64k.hot":            0.8,
	"xdp.exact.64k.spread":         0.5,
	"xdp.smp":                      1.1,
	"live.read":                    2.0,
	"wire.live":                    3.0,
	"wire.mirror":                  2.0,
	"poll.xdp.4k":                  1.5,
	"poll.cold.10k":                1.5,
	"poll.cold.64k":                2.4,
	"poll.cpus.64":                 4,
	"poll.cpus.64.spread":          4,
	"poll.idle.0":                  3,
	"poll.idle.10k":                3,
	"xdp.masked.1k.hot":            1,
	"xdp.masked.1k.spread":         2,
	"xdp.masked.16k.spread":        0.6,
	"xdp.ranges.1k.spread":         1.3,
	"xdp.nonip.24":                 1.3,
	"xdp.otherip.1":                1.3,
	"xdp.classbench.acl.1k":        0.1,
	"xdp.classbench.acl.10k":       0.1,
	"xdp.classbench.fw.1k":         0.1,
	"xdp.classbench.fw.10k":        0.1,
	"xdp.classbench.ipc.1k":        0.1,
	"xdp.classbench.ipc.10k":       0.1,
	"xdp.classbench.acl.1k.rte":    1,
	"xdp.classbench.acl.10k.rte":   1,
	"xdp.classbench.fw.1k.rte":     1,
	"xdp.classbench.fw.10k.rte":    1,
	"xdp.classbench.ipc.1k.rte":    1,
	"xdp.classbench.ipc.10k.rte":   1,
	"xdp.vs.nft.map":               1,
	"xdp.vs.nft.vmap":              1,
	"xdp.vs.nft.linear":            1,
	"veth.1k":                      1,
	"xdp.update.10k":               2,
	"xdp.load.16k":                 16,
	"flow.add.64k":                 2.0,
	"flow.remove.64k":              2.0,
	"flow.add.64k.grpc":            2.0,
	"flow.remove.64k.grpc":         2.0,
	"flow.add.64k.rdma":            2.0,
	"flow.remove.64k.rdma":         2.0,
	"flow.cli.64k":                 2.0,
	"flow.memory.64k":              8.0,
	"hooks.start.240":              0.6,
	"hooks.burst.240":              1.5,
	"hooks.idle.240":               0.5,
	"hooks.stop.240":               2.0,
	"export.scrape.4k":             2.0,
	"xdp.vs.lpm.1k":                1,
	"xdp.vs.lpm.16k":               1,
	"xdp.set.hosts.miss":           0.1,
	"xdp.set.list.miss":            0.1,
	"xdp.set.list.hit":             0.1,
	"xdp.set.list.near":            0.12,
	"xdp.set.ipv6.miss":            0.2,
	"xdp.set.ipv6.hit":             0.4,
	"xdp.set.levels.near":          1.1,
	"xdp.set.change":               7,
	"xdp.set.load":                 0.9,
	"xdp.vs.nft.concat":            1,
	"xdp.vs.nft.set":               1,
	"veth.1k.concat":               1,
	"veth.1k.set":                  1,
	"read.vs.prometheus.4k":        1,
	"read.vs.prometheus.scrape.4k": 1,
	"read.vs.aeron.4k":             1,
	"read.vs.aeron.ids.4k":         2.2,
	"read.vs.govpp.4k":             1,
	"top.4k":                       6,
	"top.4k.200x60":                6,
}

// line runs a command line.
func line(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, talk bytes.Buffer
	code = run(t.Context(), &out, &talk, args)
	return code, out.String(), talk.String()
}

func TestHasEveryRow(t *testing.T) {
	got := map[string]float64{}
	for _, row := range everyRow() {
		got[row.Name] = row.Bound
		if row.Ref == "" || row.Open == nil {
			t.Errorf("%s: ref %q, Open %t", row.Name, row.Ref, row.Open != nil)
		}
	}
	for name, bound := range bounds {
		if got[name] != bound {
			t.Errorf("%s: bound %v, want %v", name, got[name], bound)
		}
	}
	code, out, _ := line(t, "--list")
	for name := range bounds {
		if !strings.Contains(out, name+" ") {
			t.Errorf("--list does not name %s", name)
		}
	}
	if code != exitOK {
		t.Errorf("--list: exit code %d", code)
	}
}

func TestUnknownRowIsRefused(t *testing.T) {
	code, out, talk := line(t, "--row", "shm.raed")
	if code != exitUsage || out != "" || !strings.Contains(talk, `row "shm.raed": no such row`) || !strings.Contains(talk, "shm.read ") {
		t.Errorf("exit code %d, %q, %q", code, out, talk)
	}
}

func TestJSONHasTheMeasuredRow(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs CPU affinity: Linux")
	}
	code, out, talk := line(t, "--short", "--row", "shm.read", "-o", "json")
	var got struct {
		Schema  int
		Machine struct{ CPU, Kernel string }
		Results []struct {
			Name   string
			Ours   *float64 `json:"ours_ns"`
			RefNS  *float64 `json:"ref_ns"`
			Ref    string
			Ratio  *float64
			Spread *float64
			Low    *float64
			High   *float64
			Reason string
			Noisy  bool
		}
	}
	of, err := schema.Read(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(of, []byte(out)); err != nil {
		t.Errorf("not of its schema: %v", err)
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitOK {
		t.Fatalf("exit code %d, %v: %s%s", code, err, out, talk)
	}
	if got.Schema != 1 || got.Machine.Kernel == "" || len(got.Results) != 1 {
		t.Fatalf("got %s", out)
	}
	r := got.Results[0]
	if r.Noisy { // a machine that runs tests may be too busy
		return
	}
	if r.Ratio == nil {
		t.Fatalf("not measured: %s", r.Reason)
	}
	if r.Name != "shm.read" || r.Ref == "" || *r.Ours <= 0 || *r.RefNS <= 0 || r.Spread == nil || *r.Ratio < *r.Low || *r.Ratio > *r.High {
		t.Errorf("got %s", out)
	}
}

// TestFiguresThatCannotBeKeptAreRefused: before anything is measured.
func TestFiguresThatCannotBeKeptAreRefused(t *testing.T) {
	dir := t.TempDir()
	code, out, talk := line(t, "--keep", filepath.Join(dir, "none"))
	if code != exitUsage || out != "" || !strings.Contains(talk, "no such file or directory") {
		t.Errorf("a directory that is missing: exit code %d, %q, %q", code, out, talk)
	}

	broken := filepath.Join(dir, "zen-9.json")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, talk = line(t, "--keep", dir)
	if code != exitFailed || out != "" || !strings.Contains(talk, "git checkout "+broken) {
		t.Errorf("a file that is broken: exit code %d, %q, %q", code, out, talk)
	}

	code, out, talk = line(t, "--plot", "--gate")
	if code != exitUsage || out != "" || !strings.Contains(talk, "--plot measures points of its own") {
		t.Errorf("--plot with --gate: exit code %d, %q, %q", code, out, talk)
	}
}

// TestRunKeepsItsFigures: with --keep, and for the owner of the directory.
func TestRunKeepsItsFigures(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs CPU affinity: Linux")
	}
	dir := t.TempDir()
	code, _, talk := line(t, "--short", "--row", "shm.read", "--keep", dir, "--commit", "0123456789ab+")
	files, err := keep.Read(dir)
	if err != nil || code != exitOK || len(files) != 1 {
		t.Fatalf("exit code %d, %v, %+v: %s", code, err, files, talk)
	}
	f := files[0]
	if f.Core == "" || f.Machine.Core() != f.Core || len(f.Points) != 0 {
		t.Errorf("kept %+v", f)
	}
	if len(f.Rows) == 0 && strings.Contains(talk, "disturbed") { // too busy for any figure
		return
	}
	if len(f.Rows) != 1 || f.Rows[0].Name != "shm.read" || f.Rows[0].Commit != "0123456789ab+" || f.Rows[0].Ratio <= 0 {
		t.Errorf("kept %+v", f.Rows)
	}
}

// TestSchemaKeepsItsFields compares the schema with the types. Programs rely on the fields that it has.
func TestSchemaKeepsItsFields(t *testing.T) {
	docs, err := schema.ReadDocs("github.com/flowtally/flowtally", "../../..", "internal/bench")
	if err != nil {
		t.Fatal(err)
	}
	now, err := schema.Of("flowtally-bench -o json", docs, reflect.TypeFor[bench.Report]())
	if err != nil {
		t.Fatal(err)
	}
	old, err := schema.Read(schemaFile)
	if err != nil && !(*update && errors.Is(err, fs.ErrNotExist)) {
		t.Fatal(err)
	}
	if lost := schema.Lost(old, now); len(lost) > 0 {
		t.Fatalf("programs rely on it:\n%s", strings.Join(lost, "\n"))
	}
	text, err := schema.Text(now)
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, schemaFile, text, *update)
}

// untilRow ends the run when it has printed a row.
type untilRow struct {
	bytes.Buffer
	row string
	end func()
}

func (w *untilRow) Write(p []byte) (int, error) {
	if bytes.HasPrefix(p, []byte(w.row+" ")) {
		w.end()
	}
	return w.Buffer.Write(p)
}

// TestEndedRunKeepsItsRows: those that were measured before the signal are printed, and the run fails.
func TestEndedRunKeepsItsRows(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs CPU affinity: Linux")
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	out := &untilRow{row: "shm.read", end: end}
	var talk bytes.Buffer
	code := run(ctx, out, &talk, []string{"--short", "--row", "shm.read", "--row", "shm.publish"})
	if code != exitFailed || strings.Count(out.String(), "\n") != 2 || !strings.Contains(talk.String(), "ended by a signal after 1 of 2 rows") {
		t.Errorf("exit code %d, %q, %q", code, out.String(), talk.String())
	}
}
