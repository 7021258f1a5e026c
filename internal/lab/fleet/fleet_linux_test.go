package fleet

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/frame"
	"github.com/flowtally/flowtally/shm"
)

const (
	instances = 8
	// packets is how many each sender sends at least; each sends another number.
	packets = 20_000
)

// eth addresses frames to a MAC that no interface has, so that the stack behind XDP ignores them.
var eth = frame.Eth{Dst: [6]byte{2, 0, 0, 0, 0, 1}, Src: [6]byte{2, 0, 0, 0, 0, 2}}

// host is one host of the fleet: a namespace with an instance, and an exporter without privilege.
type host struct {
	name, mirror string
	far          *lab.End
	run          *process
	sent         uint64
}

// TestFleet: eight instances count real packets in namespaces of their own. A user without privilege exports each. The
// sum that one Prometheus computes is the number of packets that the kernel accepted, and every query of the dashboard
// returns data.
func TestFleet(t *testing.T) {
	needFleet(t)
	home, err := lab.CurrentNetns() // sets lo up
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { home.Close() })
	var hosts []*host
	var targets []string
	for i := range instances {
		h := newHost(t, i)
		hosts = append(hosts, h)
		var more []string
		if i == 0 { // an endpoint that refuses connections
			more = []string{"--otlp", "http://127.0.0.1:9", "--otlp-period", "100ms"}
		}
		targets = append(targets, exporter(t, h.mirror, nobody, more...))
	}
	// The control socket is root's.
	targets = append(targets, exporter(t, hosts[0].mirror, 0, "--conditions", "--instance", hosts[0].name, "no-such-counter"))
	targets = append(targets, exporter(t, completionMirror(t), nobody))
	prometheus := startPrometheus(t, targets)
	prometheus.await(`sum(up{job="flowtally"})`, func(s []sample) bool { return len(s) == 1 && s[0].value() == float64(len(targets)) })

	var sent uint64
	var all sync.WaitGroup
	for i, h := range hosts {
		all.Go(func() { h.send(t, i) })
	}
	all.Wait()
	for _, h := range hosts {
		sent += h.sent
	}
	if t.Failed() {
		return
	}
	sum := prometheus.await("sum(flowtally_packets_total)", func(s []sample) bool { return len(s) == 1 && s[0].value() == float64(sent) })
	t.Logf("sent %d, sum(flowtally_packets_total) = %v over %d instances", sent, sum[0].Value[1], instances)
	for _, h := range hosts {
		got := prometheus.query(fmt.Sprintf(`sum(flowtally_packets_total{host=%q})`, h.name))
		if len(got) != 1 || got[0].value() != float64(h.sent) {
			t.Errorf("%s: sent %d, Prometheus has %v", h.name, h.sent, got)
		}
	}
	dashboard(t, prometheus)
	firing := prometheus.query(`ALERTS{alertname=~"FlowtallyWriterDead|FlowtallyExporterDown|FlowtallyMirrorMissing|FlowtallyMirrorStale|FlowtallyDiscontinuity"}`)
	if len(firing) > 0 {
		t.Errorf("alerts about hosts that are well: %v", firing)
	}
	hosts[1].run.stop()
	state := `flowtally_writer_state{state="halt"} == 1`
	prometheus.await(state, func(s []sample) bool { return len(s) == 1 })
	after := prometheus.query("sum(flowtally_packets_total)")
	if len(after) != 1 || after[0].value() != float64(sent) {
		t.Errorf("after one writer has ended the sum is %v, sent %d", after, sent)
	}
}

// newHost starts an instance that counts on a veth pair in a namespace of its own.
func newHost(t *testing.T, i int) *host {
	t.Helper()
	near, err := lab.NewNetns("")
	if err != nil {
		t.Fatal(err)
	}
	far, err := lab.NewNetns("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	pair, err := lab.NewPair(near, far, "eth0", "far0", lab.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h := &host{name: lab.Unique("host-"), far: pair.B}
	dir := t.TempDir()
	mode := "native"
	if i == 0 {
		mode = "generic" // raises a condition
	}
	h.mirror = filepath.Join("/dev/shm", h.name, h.name+".mirror")
	config := fmt.Sprintf(`instance: %s
backend: xdp
interfaces: [{name: eth0, mode: %s}]
mirror: {path: %s}
flows:
  - {name: web, match: tcp dport 443, labels: {host: %[1]s}}
  - {name: dns, match: udp dport 53, labels: {host: %[1]s}}
  - {name: banned, match: udp dport 6666, action: drop, labels: {host: %[1]s, action: drop}}
`, h.name, mode, h.mirror)
	path := filepath.Join(dir, "flowtally.yaml")
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(filepath.Dir(h.mirror)) })
	err = near.Do(func() error {
		h.run = start(t, exec.Command(binary(t, "flowtally"), "run", "--config", path, "--log.format", "text"))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	h.run.await("placed.*flow=banned")
	return h
}

// send sends packets of the three flows, another number on each host, and waits until the programs have seen them.
func (h *host) send(t *testing.T, i int) {
	stream := func(name string, l4 frame.Layer) lab.Stream {
		return lab.Stream{Name: name, Frames: [][]byte{frame.Build(eth, frame.IPv4{Src: frame.Addr("10.0.0.1"), Dst: frame.Addr("10.0.0.2")}, l4, frame.Payload(64))}, Weight: 1}
	}
	s, err := h.far.NewSender([]lab.Stream{
		stream("web", frame.TCP{Src: 1, Dst: 443}), stream("dns", frame.UDP{Src: 1, Dst: 53}), stream("banned", frame.UDP{Src: 1, Dst: 6666}),
	}, lab.SenderOptions{})
	if err != nil {
		t.Error(err)
		return
	}
	defer s.Close()
	if err := s.Run(t.Context(), uint64(packets+111*i)); err != nil {
		t.Error(err)
	}
	if err := s.Settle(t.Context()); err != nil {
		t.Error(err)
	}
	for _, n := range s.Sent() {
		h.sent += n.Packets
	}
}

// exporter starts an exporter of a mirror as a user, and returns its address.
func exporter(t *testing.T, mirror string, uid uint32, more ...string) string {
	t.Helper()
	cmd := exec.Command(binary(t, "flowtally"), append([]string{"export", "--mirror", mirror, "--listen", "127.0.0.1:0", "--label-keys", "host,action", "--log.format", "text"}, more...)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return start(t, cmd).await(`serving.* address=(\S+)`)[1]
}

// completionMirror makes a mirror with a counter of completions that has errors, a counter that is ambiguous, and one
// that was never sampled.
func completionMirror(t *testing.T) string {
	t.Helper()
	path := filepath.Join("/dev/shm", lab.Unique("completions-"), "x.mirror")
	w, err := shm.Create(shm.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	ended, living := make(chan struct{}), new(sync.WaitGroup)
	t.Cleanup(func() { close(ended); living.Wait(); w.Close(); os.RemoveAll(filepath.Dir(path)) })
	sentBy, err := w.Add(shm.Entry{Name: "near-sent", Kind: shm.KindCompletion, Source: "rdma:rxe0/poll_cq", Valid: true, Ambiguous: true, Continuity: shm.Continuity{Discontinuities: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Add(shm.Entry{Name: "near-read", Kind: shm.KindCompletion, Source: "rdma:rxe0/poll_cq", Valid: true}); err != nil {
		t.Fatal(err)
	}
	now := shm.Now()
	w.BeginCycle()
	var b shm.Block
	b[sentBy.Index%shm.BlockLen] = shm.Value{Packets: 41_000, Bytes: 256, SampledAt: now}
	w.PublishBlock(int(sentBy.Index/shm.BlockLen), &b)
	w.EndCycle(now)
	living.Go(func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(50 * time.Millisecond):
				w.Heartbeat(shm.Now())
			}
		}
	})
	return path
}

// dashboard runs every query of the dashboard, and each must return data.
func dashboard(t *testing.T, prometheus *server) {
	t.Helper()
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct {
				Name  string
				Query any
			}
		}
	}
	if err := json.Unmarshal([]byte(read(t, "../../../configs/grafana/flowtally.json")), &d); err != nil {
		t.Fatal(err)
	}
	values := strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$instance", ".*", "$counter", ".*")
	queries := 0
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			queries++
			expr := values.Replace(target.Expr)
			if strings.Contains(expr, "$") {
				t.Errorf("%s: a variable is left in %s", p.Title, expr)
				continue
			}
			prometheus.await(expr, func(s []sample) bool { return len(s) > 0 })
		}
	}
	var names []string
	for _, v := range d.Templating.List {
		names = append(names, v.Name)
	}
	for _, want := range []string{"job", "instance", "counter"} {
		if !slices.Contains(names, want) {
			t.Errorf("the dashboard has no variable %s", want)
		}
	}
	t.Logf("%d queries of %d panels returned data", queries, len(d.Panels))
	if queries < 15 {
		t.Errorf("only %d queries were found", queries)
	}
}
