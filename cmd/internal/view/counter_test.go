package view

import (
	"bytes"
	"errors"
	"flag"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/internal/lab/golden"
	"github.com/flowtally/flowtally/shm"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// compare compares got with testdata/golden/name.
func compare(t *testing.T, name, got string) {
	t.Helper()
	golden.Compare(t, filepath.Join("testdata", "golden", name), got, *update)
}

const second = int64(1e9)

// twoReadings are two looks, two seconds apart, at every kind of counter.
func twoReadings() (before, cur *Reading) {
	before = &Reading{Path: "/run/flowtally/default.mirror", Now: 100 * second, Zero: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Writer: Writer{"run", 3e6}, Counters: []Counter{
		{Index: 0, Generation: 1, Name: "dns", Kind: "flow", Source: "xdp eth0 native", ByteBasis: "l2", Valid: true, Packets: 1000, Bytes: 64000, SampledAt: 100*second - 4e6},
		{Index: 1, Generation: 1, Name: "reused", Kind: "flow", Source: "xdp eth0 native", ByteBasis: "l2", Valid: true, Packets: 7, Bytes: 7, SampledAt: 99 * second},
		{Index: 2, Generation: 1, Name: "idle", Kind: "flow", Source: "xdp eth0 native", ByteBasis: "l2", Valid: true, Packets: 0, Bytes: 0, SampledAt: 100*second - 4e6},
		{Index: 3, Generation: 1, Name: "stuck", Kind: "flow", Source: "xdp eth1 generic", ByteBasis: "l2", Valid: true, Stale: true, Packets: 5, Bytes: 500, SampledAt: 40 * second},
		{Index: 4, Generation: 1, Name: "new", Kind: "flow", Valid: true},
		{Index: 5, Generation: 1, Name: "web", Kind: "flow", Source: "xdp eth0,eth1 native,generic", ByteBasis: "l2", Valid: true, Ambiguous: true, Packets: 1 << 40, Bytes: 1 << 50, SampledAt: 100*second - 4e6, Discontinuities: 2},
	}}
	c := *before
	cur = &c
	cur.Now += 2 * second
	cur.Counters = append([]Counter(nil), before.Counters...)
	for i := range cur.Counters {
		if n := cur.Counters[i].Name; n == "dns" || n == "idle" || n == "web" {
			cur.Counters[i].SampledAt += 2 * second
		}
	}
	cur.Counters[0].Packets += 3_000_000
	cur.Counters[0].Bytes += 192_000_000
	for i := range cur.Counters {
		cur.Counters[i].Unit = "packets"
	}
	cur.Counters[0].Labels = map[string]string{"team": "net"}
	cur.Counters[1] = Counter{Index: 1, Generation: 2, Name: "reuse2", Kind: "flow", Unit: "packets", Source: "sim", ByteBasis: "unknown", Packets: 9, Bytes: 9, SampledAt: 101 * second}
	return before, cur
}

func TestReadingsPrintAsInTheGoldenFiles(t *testing.T) {
	before, cur := twoReadings()
	Rates(before, cur)
	Sort(cur.Counters, "name")
	compare(t, "top.txt", Top(cur))
	compare(t, "get.txt", Get(cur))
	cur.Writer = Writer{"dead", 75 * second}
	compare(t, "top-dead.txt", Top(cur))
	cur.Counters[3].Gone = true
	var b bytes.Buffer
	if err := format.JSON(&b, ToJSON(cur)); err != nil {
		t.Fatal(err)
	}
	compare(t, "get.json", b.String())
}

// completionReadings are two looks at flows and completion counters of a queue pair.
func completionReadings() (before, cur *Reading) {
	before, cur = twoReadings()
	for _, r := range []*Reading{before, cur} {
		r.Counters = append(r.Counters[:1:1],
			Counter{Index: 7, Generation: 1, Name: "near-sent", Kind: "completion", Unit: "completions", Source: "rdma rxe0 poll_cq", ByteBasis: "errors", Valid: true, Packets: 1000, SampledAt: r.Now - 4e6},
			Counter{Index: 8, Generation: 1, Name: "near-read", Kind: "completion", Unit: "completions", Source: "rdma rdmap0s6 comp_cntr+external", ByteBasis: "errors", Valid: true},
		)
	}
	cur.Counters[1].Packets += 50_000
	cur.Counters[1].Bytes += 256
	return before, cur
}

func TestCompletionsPrintAsInTheGoldenFiles(t *testing.T) {
	before, cur := completionReadings()
	Rates(before, cur)
	Sort(cur.Counters, "name")
	compare(t, "top-completions.txt", Top(cur))
	compare(t, "get-completions.txt", Get(cur))
	var b bytes.Buffer
	if err := format.JSON(&b, ToJSON(cur)); err != nil {
		t.Fatal(err)
	}
	compare(t, "get-completions.json", b.String())
	cur.Counters = cur.Counters[1:]
	compare(t, "get-completions-only.txt", Get(cur))
}

func TestTotalThatWentBackHasNoRate(t *testing.T) {
	before, cur := twoReadings()
	Rates(nil, cur)
	for _, c := range cur.Counters {
		if c.HasRate {
			t.Errorf("%s has a rate after one look", c.Name)
		}
	}
	Rates(before, cur)
	want := map[string]float64{"dns": 1_500_000, "idle": 0, "web": 0}
	for _, c := range cur.Counters {
		rate, has := want[c.Name]
		if c.HasRate != has || c.PacketsPerSec != rate {
			t.Errorf("%s: rate %v %v, want %v %v", c.Name, c.PacketsPerSec, c.HasRate, rate, has)
		}
	}
	// A total that went back gives no rate, however it came about.
	_, cur = twoReadings()
	cur.Counters[0].Packets = 999
	if Rates(before, cur); cur.Counters[0].HasRate {
		t.Error("a rate from a total that went back")
	}
}

func TestCountersSortByEachColumn(t *testing.T) {
	names := func(by string) string {
		before, cur := twoReadings()
		Rates(before, cur)
		Sort(cur.Counters, by)
		var s []string
		for _, c := range cur.Counters {
			s = append(s, c.Name)
		}
		return strings.Join(s, " ")
	}
	for by, want := range map[string]string{
		"name":    "dns idle new reuse2 stuck web",
		"packets": "web dns reuse2 stuck idle new",
		"bytes":   "web dns stuck reuse2 idle new",
		"rate":    "dns idle new reuse2 stuck web",
	} {
		if got := names(by); got != want {
			t.Errorf("by %s: %s, want %s", by, got, want)
		}
	}
}

func TestChangesPrintAsInTheGoldenFiles(t *testing.T) {
	for name, asJSON := range map[string]bool{"watch.txt": false, "watch.json": true} {
		var b bytes.Buffer
		p := ChangePrinter{out: &b, json: asJSON, zero: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
		web := Counter{Name: "web", Kind: "flow", Unit: "packets", Generation: 3, Labels: map[string]string{"site": "ams"}, Ambiguous: true, Discontinuities: 2}
		value := shm.Value{Packets: 1234567, Bytes: 79012288, SampledAt: 60*second + 5e6}
		for _, c := range []Change{
			{Position: 9, Counter: web, Value: value, Cycle: 4},
			{Position: 10, Counter: web, Value: value, Cycle: 5, HasDelta: true, Since: 59*second + 5e6, PacketsDelta: 1200, BytesDelta: 76800},
			{Position: 11, Counter: Counter{Generation: 4, Gone: true}, Value: value, Cycle: 5},
			{Position: 12, Counter: Counter{Name: "near-sent", Kind: shm.KindCompletion, Unit: "completions", Generation: 2, Stale: true, Gone: true}, Value: shm.Value{Packets: 1000, Bytes: 3, SampledAt: 61 * second}, Cycle: 6, HasDelta: true, Since: 59 * second, PacketsDelta: 10, BytesDelta: 3},
		} {
			if err := p.Change(c); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(p.Lost(1), p.Lost(12345)); err != nil {
			t.Fatal(err)
		}
		compare(t, name, b.String())
	}
}
