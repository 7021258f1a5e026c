package cli

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// bounds are the required bounds of the rows.
var bounds = map[string]float64{
	"shm.read": 2.0, "shm.read.c": 2.0, "shm.read.busy": 1.2, "shm.snapshot.16k": 1.3, "shm.snapshot.256k": 1.15, "shm.publish": 2.0, "shm.visible": 1.6, "shm.wait": 1.3, "shm.wait.crowd": 1.05, "shm.wait.member": 1.05, "shm.wait.idle": 1.0, "shm.wait.idle.busy": 1.0,
	"xdp.one": 1.3, "xdp.exact.64k.hot": 0.5, "xdp.exact.64k.spread": 0.4, "xdp.smp": 1.1, "live.read": 2.0, "wire.live": 3.0, "wire.mirror": 2.0, "poll.xdp.4k": 3.0, "poll.cold.10k": 1.5, "poll.cold.64k": 2.4, "poll.cpus.64": 4, "poll.cpus.64.spread": 4, "poll.idle.0": 0.1, "poll.idle.10k": 0.5,
	"xdp.masked.1k.hot": 1.8, "xdp.masked.1k.spread": 7.5, "xdp.masked.16k.spread": 12, "xdp.ranges.1k.spread": 1.3, "xdp.nonip.24": 1.3, "xdp.otherip.1": 1.3,
	"xdp.classbench.acl.1k": 0.1, "xdp.classbench.acl.10k": 0.1, "xdp.classbench.fw.1k": 0.1, "xdp.classbench.fw.10k": 0.1, "xdp.classbench.ipc.1k": 0.1, "xdp.classbench.ipc.10k": 0.1,
	"xdp.classbench.acl.1k.rte": 1, "xdp.classbench.acl.10k.rte": 1, "xdp.classbench.fw.1k.rte": 1, "xdp.classbench.fw.10k.rte": 1, "xdp.classbench.ipc.1k.rte": 1, "xdp.classbench.ipc.10k.rte": 1,
	"xdp.vs.nft.map": 1, "xdp.vs.nft.vmap": 1, "xdp.vs.nft.linear": 1, "veth.1k": 1, "xdp.update.10k": 2, "xdp.load.16k": 1,
	"flow.add.64k": 2.0, "flow.remove.64k": 2.0, "flow.add.64k.grpc": 2.0, "flow.remove.64k.grpc": 2.0, "flow.add.64k.rdma": 2.0, "flow.remove.64k.rdma": 2.0, "flow.cli.64k": 2.0, "flow.memory.64k": 1.0,
	"hooks.start.240": 0.6, "hooks.burst.240": 1.5, "hooks.idle.240": 0.5, "hooks.stop.240": 2.0,
}

// benchLine runs flowtally bench with args.
func benchLine(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, talk bytes.Buffer
	code = Main(t.Context(), strings.NewReader(""), &out, &talk, append([]string{"bench"}, args...))
	return code, out.String(), talk.String()
}

func TestBenchHasEveryRow(t *testing.T) {
	got := map[string]float64{}
	for _, row := range benchRows() {
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
	code, out, _ := benchLine(t, "--list")
	for name := range bounds {
		if !strings.Contains(out, name+" ") {
			t.Errorf("--list does not name %s", name)
		}
	}
	if code != exitOK {
		t.Errorf("--list: exit code %d", code)
	}
}

func TestBenchRefusesUnknownRows(t *testing.T) {
	code, out, talk := benchLine(t, "--row", "shm.raed")
	if code != exitUsage || out != "" || !strings.Contains(talk, `row "shm.raed": no such row`) || !strings.Contains(talk, "shm.read ") {
		t.Errorf("exit code %d, %q, %q", code, out, talk)
	}
}

func TestBenchPrintsJSON(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs CPU affinity: Linux")
	}
	code, out, talk := benchLine(t, "--short", "--row", "shm.read", "-o", "json")
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
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitOK {
		t.Fatalf("exit code %d, %v: %s%s", code, err, out, talk)
	}
	if got.Schema != 1 || got.Machine.Kernel == "" || len(got.Results) != 1 {
		t.Fatalf("got %s", out)
	}
	r := got.Results[0]
	if r.Ratio == nil {
		if !strings.HasPrefix(r.Reason, "noise: ") { // a machine that runs tests may be too busy
			t.Errorf("null: %s", r.Reason)
		}
		return
	}
	if r.Name != "shm.read" || r.Ref == "" || *r.Ours <= 0 || *r.RefNS <= 0 || r.Spread == nil || *r.Ratio < *r.Low || *r.Ratio > *r.High {
		t.Errorf("got %s", out)
	}
}

// TestBenchRefusesAPlotThatCannotBe: before anything is measured.
func TestBenchRefusesAPlotThatCannotBe(t *testing.T) {
	code, out, talk := benchLine(t, "--plot", filepath.Join(t.TempDir(), "none", "plot.svg"))
	if code != exitFailed || out != "" || !strings.Contains(talk, "opening the plot") {
		t.Errorf("a directory that is missing: exit code %d, %q, %q", code, out, talk)
	}
	code, out, talk = benchLine(t, "--plot", filepath.Join(t.TempDir(), "plot.svg"), "--gate")
	if code != exitUsage || out != "" || !strings.Contains(talk, "--plot measures points of its own") {
		t.Errorf("with --gate: exit code %d, %q, %q", code, out, talk)
	}
}
