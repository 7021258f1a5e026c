package configs_test

import (
	"errors"
	"io/fs"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowtally/flowtally/configs"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

func parse(t *testing.T, text string) dataplane.Config {
	t.Helper()
	cfg, err := configs.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func match(t *testing.T, text string) flow.Match {
	t.Helper()
	m, err := flow.ParseMatch(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestParseDecodesEverySetting(t *testing.T) {
	got := parse(t, `
instance: edge-1
backend: xdp
interfaces: [eth0, {name: eth1, mode: generic}]
mirror:
  path: /dev/shm/x.mirror
  counters: 128
  latency_counters: 8
  history: -1
  history_period: 250ms
  mode: 0640
poll: {period: 1ms, idle_period: 20ms, busy: true, cpu: 3}
xdp: {pin_dir: /sys/fs/bpf/x, max_flows: 70000, worst_cost: 900, keep_pins: true, tcx: last, beside: [refuse]}
rdma: {library: /opt/lib/libibverbs.so.1, mlx5: /opt/lib/libmlx5.so.1, commands_per_second: 500, byte_basis: l2-fcs-untagged, steal: true, audit: true}
flows:
  - name: web
    match: tcp dport 443
    priority: 7
    direction: egress
    action: drop
    interface: eth1
    backend: rdma
    latency: true
    labels: {team: edge, tier: 1, empty: }
  - {name: all, match: any}
`)
	want := dataplane.Config{
		Instance: "edge-1", Backend: "xdp",
		Interfaces: []dataplane.Interface{{Name: "eth0"}, {Name: "eth1", Mode: "generic"}},
		Mirror: dataplane.MirrorConfig{
			Path: "/dev/shm/x.mirror", Counters: 128, LatencyCounters: 8, History: -1,
			HistoryPeriod: 250 * time.Millisecond, Mode: 0o640,
		},
		Poll: dataplane.PollConfig{Period: time.Millisecond, IdlePeriod: 20 * time.Millisecond, Busy: true, CPU: 3},
		XDP:  dataplane.XDPConfig{PinDir: "/sys/fs/bpf/x", MaxFlows: 70000, WorstCost: 900, KeepPins: true, TCX: "last", Beside: []dataplane.Beside{"refuse"}},
		RDMA: dataplane.RDMAConfig{
			Library: "/opt/lib/libibverbs.so.1", MLX5: "/opt/lib/libmlx5.so.1", CommandsPerSecond: 500, ByteBasis: "l2-fcs-untagged", Steal: true, Audit: true,
		},
		Flows: []flow.Flow{
			{Name: "web", Match: match(t, "tcp dport 443"), Priority: 7, Direction: flow.Egress, Action: flow.Drop, Interface: "eth1", Backend: "rdma", Latency: true,
				Labels: map[string]string{"team": "edge", "tier": "1", "empty": ""}},
			{Name: "all"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Both forms of a match mean the same.
func TestBothFormsOfAMatchAreEqual(t *testing.T) {
	for _, c := range []struct{ yaml, text string }{
		{"{}", "any"},
		{"{tcp: }", "tcp"},
		{"{tcp: {}}", "tcp"},
		{"{ipv4: {src: 10.0.0.0/8}, tcp: {dport: 443}}", "ipv4 src 10.0.0.0/8 tcp dport 443"},
		{"{udp: {dport: 1000-2000, sport: 0x35}}", "udp sport 53 dport 1000-2000"},
		{"{vlan: {id: 100, pcp: 3}}", "vlan id 100 pcp 3"},
		{"{vlan: [{id: 100}, {id: 7}]}", "vlan id 100 vlan id 7"},
		{"{vlan: [~, {dei: 1}]}", "vlan vlan dei 1"},
		{"{eth: {dst: 02:00:00:00:00:01, type: 0x88cc}}", "eth dst 02:00:00:00:00:01 type 0x88cc"},
		{"{ipv4: {frag: no, tos: 0x10/0xfc, proto: 47}}", "ipv4 proto 47 dscp 4 frag no"},
		{"{ipv4: {dscp: ef, ecn: ce, proto: gre}}", "ipv4 proto 47 tos 0xbb"},
		{"{ipv6: {dscp: 46}, icmp: {type: echo-request}}", "ipv6 dscp 46 icmp type 128"},
		{"{tcp: {dport: ssh-https}}", "tcp dport 22-443"},
		{"{vlan: {pcp: 5}, arp: {op: request, target: 192.0.2.1}}", "vlan pcp 5 arp op 1 target 192.0.2.1"},
		{"{sctp: {dport: 3868, vtag: 7}}", "sctp dport 3868 vtag 0x00000007"},
		{"{ah: {spi: 0x100}, ipv4: {}}", "ipv4 ah spi 0x00000100"},
		{"{ipv6: {src: '2001:db8::/32', label: 5, nexthdr: 0}}", "ipv6 src 2001:db8::/32 label 5 nexthdr 0"},
		{"{icmp: {type: 8, code: 0}}", "icmp type 8 code 0"},
		{"{vxlan: {inner: {tcp: {dport: 80}}, vni: 5}, ipv4: {ttl: 9}}", "ipv4 ttl 9 vxlan vni 5 inner tcp dport 80"},
		{"{vxlan: {inner: }}", "vxlan inner any"},
		{"{gre: {key: 7, inner: any}}", "gre key 7 inner any"},
		{"{gre: {inner: {}}}", "gre inner any"},
		{"{incomplete: {}, ipv6: {}}", "ipv6 incomplete"},
		{"{incomplete: }", "incomplete"},
		{"{vxlan: {inner: {incomplete: }}}", "vxlan inner incomplete"},
		{"{ipip: }", "ipip"},
		{"{ipip: {inner: {ipv4: {dst: 192.0.2.10}}}, ipv6: }", "ipv6 ipip inner ipv4 dst 192.0.2.10"},
		{"{geneve: {vni: 5, inner: {eth: }}}", "geneve vni 5 inner eth"},
		{"{gtpu: {teid: 0x1000, inner: ipv4}}", "gtpu teid 0x00001000 inner ipv4"},
		{"{mplsudp: {label: 16, bos: 1}}", "mplsudp label 16 bos 1"},
		{"{gre: {inner: ipv6 udp dport 53}}", "gre inner ipv6 udp dport 53"},
		{"\n      ipv4:\n        dst: 192.0.2.1\n      gre:", "ipv4 dst 192.0.2.1 gre"},
	} {
		got := parse(t, "backend: sim\nflows:\n  - name: x\n    match: "+c.yaml+"\n").Flows[0].Match
		if diff := cmp.Diff(match(t, c.text), got); diff != "" {
			t.Errorf("%s is not %s (-want +got):\n%s", c.yaml, c.text, diff)
		}
	}
}

// Every setting of the sample file shows its default: the file as it is sets only an interface, and
// with the comments taken off it sets everything to the zero value's meaning.
func TestSampleParsesToTheDefaults(t *testing.T) {
	one := []dataplane.Interface{{Name: "eth0"}}
	if diff := cmp.Diff(dataplane.Config{Interfaces: one}, parse(t, string(configs.Sample())), addresses); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	commented := regexp.MustCompile(`(?m)^( *)#( *(- )?[a-z_]+:)`)
	text := commented.ReplaceAllString(string(configs.Sample()), "$1$2")
	want := dataplane.Config{
		Instance: "default", Backend: "auto", Interfaces: one, Start: dataplane.StartStrict,
		Mirror: dataplane.MirrorConfig{
			Path: "/run/flowtally/default.mirror", History: 65536,
			HistoryPeriod: time.Second, Mode: 0o644,
		},
		QueuePairs: []dataplane.QueuePair{{Name: "storage", Device: "mlx5_0", GIDIndex: 3, Counters: []dataplane.CompletionCounter{
			{Name: "storage-out", Operations: []dataplane.Operation{dataplane.Send, dataplane.RDMAWrite}},
			{Name: "storage-in", Operations: []dataplane.Operation{dataplane.Recv}},
		}}},
		Poll: dataplane.PollConfig{Period: 10 * time.Millisecond, IdlePeriod: 100 * time.Millisecond},
		XDP:  dataplane.XDPConfig{PinDir: "/sys/fs/bpf/flowtally/default", MaxFlows: 65536, WorstCost: 2048, TCX: "first", Beside: dataplane.Besides()},
		RDMA: dataplane.RDMAConfig{CommandsPerSecond: 10000, ByteBasis: dataplane.BasisUnknown},
		Flows: []flow.Flow{
			{Name: "web", Match: match(t, "tcp dport 443"), Labels: map[string]string{"service": "web"}},
			{Name: "dns-answers", Match: match(t, "udp sport 53"), Direction: flow.Egress},
		},
	}
	if diff := cmp.Diff(want, parse(t, text), addresses); diff != "" {
		t.Errorf("uncommented (-want +got):\n%s", diff)
	}
	// The examples of a match in the comments are matches.
	upToFlows, _, found := strings.Cut(string(configs.Sample()), "\n# Queue pairs")
	if !found {
		t.Error("the sample does not come to queue pairs")
	}
	for _, line := range strings.Split(upToFlows, "\n") {
		if example, ok := strings.CutPrefix(line, "#                "); ok && example != "" {
			parse(t, "backend: sim\nflows: [{name: x, match: "+example+"}]")
		}
	}
	b := configs.Sample()
	b[0] = 'x'
	if configs.Sample()[0] == 'x' {
		t.Error("the caller can change the embedded file")
	}
}

// The other samples are configurations, and show their subject.
func TestSamplesAreValidAndShowTheirSubject(t *testing.T) {
	cfg, err := configs.Load("rdma.yaml")
	if err != nil {
		t.Fatal(err)
	}
	asked := map[flow.Backend]bool{}
	for _, f := range cfg.Flows {
		asked[f.Backend] = true
	}
	if !cfg.RDMA.Audit || cfg.RDMA.CommandsPerSecond == 0 || !asked["rdma"] || !asked["xdp"] || !asked[""] {
		t.Errorf("rdma.yaml shows %+v and flows by %v", cfg.RDMA, asked)
	}
	if cfg, err = configs.Load("queue-pairs.yaml"); err != nil {
		t.Fatal(err)
	}
	counted := map[dataplane.Operation]bool{}
	for _, q := range cfg.QueuePairs {
		for _, k := range q.Counters {
			for _, op := range k.Operations {
				counted[op] = true
			}
		}
	}
	if len(cfg.Interfaces) > 0 || len(cfg.QueuePairs) != 2 || cfg.QueuePairs[0].Connect != cfg.QueuePairs[1].Name || len(counted) != 4 {
		t.Errorf("queue-pairs.yaml shows %+v, which count %v", cfg.QueuePairs, counted)
	}
}

// Both forms of an address say the same, and numbers may be hexadecimal.
func TestBothFormsOfAnAddressAreEqual(t *testing.T) {
	const pair = "queue_pairs: [{name: a, device: rxe0, peer: %}]"
	want := dataplane.QueuePairAddress{
		GID: netip.MustParseAddr("::ffff:192.0.2.1"), LID: 3, QPN: 17, PSN: 0x1234, QKey: 1 << 31, Addr: 0x7f0000001000, RKey: 498,
	}
	for _, form := range []string{
		want.String(), strconv.Quote(want.String()),
		`{gid: "::ffff:192.0.2.1", lid: 3, qpn: 0x11, psn: 4660, qkey: 0x80000000, addr: 0x7f0000001000, rkey: 498}`,
	} {
		if !strings.HasPrefix(form, "{") && !strings.HasPrefix(form, `"`) {
			form = "'" + form + "'"
		}
		cfg := parse(t, strings.Replace(pair, "%", form, 1))
		if got := cfg.QueuePairs[0].Peer; got == nil || *got != want {
			t.Errorf("%s: %+v, want %+v", form, got, want)
		}
	}
}

func TestLoadNamesTheFileInItsErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := configs.Load(filepath.Join(dir, "none.yaml")); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("error %v, want one that names the file and satisfies ErrNotExist", err)
	}
	path := filepath.Join(dir, "c.yaml")
	if err := os.WriteFile(path, []byte("\ufeffbackend: sim\r\nfloes: []\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := configs.Load(path)
	if err == nil || !strings.Contains(err.Error(), path+":2:1: ") || strings.Contains(err.Error(), "\r") {
		t.Errorf("error %q, want one at line 2, column 1", err)
	}
}

// A long line is shown around the mistake, and control characters are not shown.
func TestLongLineIsCutAroundTheMistake(t *testing.T) {
	text := "backend: sim\nflows: [{name: a, match: any, labels: {" + strings.Repeat("é: x, ", 2000) + "zz: [1]}}]\nbackend: \u0085"
	_, err := configs.Parse("x", []byte(text))
	var bad *configs.Error
	if !errors.As(err, &bad) || len(err.Error()) > 60_000 || strings.ContainsRune(err.Error(), '\u0085') {
		t.Fatalf("%d bytes: %.300s", len(err.Error()), err)
	}
	for _, p := range bad.Problems {
		for _, line := range strings.Split(p.String(), "\n") {
			if n := len([]rune(line)); n > 400 {
				t.Fatalf("a line of %d characters", n)
			}
		}
	}
}

func TestMarshalFailsOnAnInvalidConfiguration(t *testing.T) {
	for _, cfg := range []dataplane.Config{
		{Backend: "frob"},
		{Backend: "sim", Mirror: dataplane.MirrorConfig{Path: "\xff"}},
		{Backend: "sim", Flows: []flow.Flow{{Name: "a", Match: flow.Match{TCP: &flow.TCP{}, UDP: &flow.Ports{}}}}},
	} {
		if data, err := configs.Marshal(cfg); !errors.Is(err, dataplane.ErrInvalid) {
			t.Errorf("%+v is written as %q, error %v", cfg, data, err)
		}
	}
}

// A file full of mistakes gives an error of bounded time and length.
func TestManyMistakesGiveAnErrorOfBoundedLength(t *testing.T) {
	text := "backend: sim\nflows: [" + strings.Repeat("{name: a, match: 'x y z'}, ", 10_000) + "]"
	_, err := configs.Parse("x", []byte(text))
	var bad *configs.Error
	if !errors.As(err, &bad) || len(bad.Problems) != 1000 || bad.More != 28_999 {
		t.Fatalf("%d problems and %d more", len(bad.Problems), bad.More)
	}
	if s := err.Error(); len(s) > 50_000 || !strings.Contains(s, "29999 mistakes") || !strings.HasSuffix(s, "… and 29949 more") {
		t.Errorf("%d bytes, %.40q … %.40q", len(s), s, s[len(s)-40:])
	}
}

// queuePair adds a queue pair that is valid before edit changes it.
func queuePair(edit func(*dataplane.QueuePair)) func(*dataplane.Config) {
	return func(c *dataplane.Config) {
		q := dataplane.QueuePair{Name: "a", Device: "d"}
		edit(&q)
		c.QueuePairs = append(c.QueuePairs, q)
	}
}

// A number that 32 bits would cut to one that is within the bounds is out of them.
func TestNumbersAbove32BitsAreOutOfRange(t *testing.T) {
	for setting, field := range map[string]string{
		"mirror: {counters: %}":                                           "mirror.counters",
		"mirror: {latency_counters: %}":                                   "mirror.latency_counters",
		"mirror: {history: %}":                                            "mirror.history",
		"poll: {cpu: %}":                                                  "poll.cpu",
		"xdp: {max_flows: %}":                                             "xdp.max_flows",
		"xdp: {worst_cost: %}":                                            "xdp.worst_cost",
		"rdma: {commands_per_second: %}":                                  "rdma.commands_per_second",
		"flows: [{name: a, match: any, priority: %}]":                     "priority",
		"queue_pairs: [{name: a, device: d, port: %}]":                    "port",
		"queue_pairs: [{name: a, device: d, gid_index: %}]":               "gid_index",
		"queue_pairs: [{name: a, device: d, send_depth: %}]":              "send_depth",
		"queue_pairs: [{name: a, device: d, receives: %}]":                "receives",
		"queue_pairs: [{name: a, device: d, message_size: %}]":            "message_size",
		"queue_pairs: [{name: a, device: d, peer: {gid: '::1', qpn: %}}]": "qpn",
	} {
		text := "backend: sim\n" + setting
		parse(t, strings.Replace(text, "%", "64", 1))
		_, err := configs.Parse("x", []byte(strings.Replace(text, "%", "4294967360", 1))) // 1<<32 + 64
		var bad *configs.Error
		if !errors.As(err, &bad) || len(bad.Problems) != 1 || !strings.Contains(bad.Problems[0].Msg, field) {
			t.Errorf("%s with 1<<32 + 64: error %v, want one of %s", setting, err, field)
		}
	}
}

// The bounds here equal the bounds of dataplane.Config.Validate: both accept a value just within,
// and both refuse a value just outside.
func TestBoundsAreThoseOfPackageDataplane(t *testing.T) {
	for _, c := range []struct {
		setting     string
		in, out     string
		set         func(*dataplane.Config)
		outOfBounds string
	}{
		{"mirror: {counters: %}", "16777216", "16777217", func(c *dataplane.Config) { c.Mirror.Counters = 1<<24 + 1 }, "mirror.counters"},
		{"mirror: {counters: %}", "0", "-1", func(c *dataplane.Config) { c.Mirror.Counters = -1 }, "mirror.counters"},
		{"mirror: {latency_counters: %}", "1048576", "1048577", func(c *dataplane.Config) { c.Mirror.LatencyCounters = 1<<20 + 1 }, "mirror.latency_counters"},
		{"mirror: {history: %}", "16777216", "16777217", func(c *dataplane.Config) { c.Mirror.History = 1<<24 + 1 }, "mirror.history"},
		{"mirror: {history: %}", "-1", "-2", func(c *dataplane.Config) { c.Mirror.History = -2 }, "mirror.history"},
		{"mirror: {history_period: %}", "1ns", "-1ns", func(c *dataplane.Config) { c.Mirror.HistoryPeriod = -1 }, "mirror.history_period"},
		{"mirror: {mode: %}", "0644", "0664", func(c *dataplane.Config) { c.Mirror.Mode = 0o664 }, "mirror.mode"},
		{"mirror: {mode: %}", "0o600", "0o400", func(c *dataplane.Config) { c.Mirror.Mode = 0o400 }, "mirror.mode"},
		{"mirror: {mode: %}", "0640", "0641", func(c *dataplane.Config) { c.Mirror.Mode = 0o641 }, "mirror.mode"},
		{"poll: {period: %}", "100us", "99us", func(c *dataplane.Config) { c.Poll.Period = 99 * time.Microsecond }, "poll.period"},
		{"poll: {idle_period: %}", "10ms", "9ms", func(c *dataplane.Config) { c.Poll.IdlePeriod = 9 * time.Millisecond }, "poll.idle_period"},
		{"poll: {cpu: %}", "0", "-1", func(c *dataplane.Config) { c.Poll.CPU = -1 }, "poll.cpu"},
		{"poll: {cpu: %}", "2147483647", "2147483648", func(c *dataplane.Config) { n := int64(1) << 31; c.Poll.CPU = int(n) }, "poll.cpu"},
		{"interfaces: [%]", "a.b", "a/b", func(c *dataplane.Config) { c.Interfaces = []dataplane.Interface{{Name: "a/b"}} }, "interface"},
		{"xdp: {max_flows: %}", "1048576", "1048577", func(c *dataplane.Config) { c.XDP.MaxFlows = dataplane.MostFlows + 1 }, "xdp.max_flows"},
		{"xdp: {worst_cost: %}", "16384", "16385", func(c *dataplane.Config) { c.XDP.WorstCost = 16385 }, "xdp.worst_cost"},
		{"rdma: {commands_per_second: %}", "1000000", "1000001", func(c *dataplane.Config) { c.RDMA.CommandsPerSecond = 1_000_001 }, "rdma.commands_per_second"},
		{"rdma: {library: %}", "/a.so", "a.so", func(c *dataplane.Config) { c.RDMA.Library = "a.so" }, "rdma.library"},
		{"rdma: {mlx5: %}", "/a.so", "./a.so", func(c *dataplane.Config) { c.RDMA.MLX5 = "./a.so" }, "rdma.mlx5"},
		{"mirror: {live_mode: %}", "0666", "0670", func(c *dataplane.Config) { c.Mirror.LiveMode = 0o670 }, "mirror.live_mode"},
		{"mirror: {live_mode: %}", "0660", "0661", func(c *dataplane.Config) { c.Mirror.LiveMode = 0o661 }, "mirror.live_mode"},
		{"mirror: {live_mode: %}", "0600", "0440", func(c *dataplane.Config) { c.Mirror.LiveMode = 0o440 }, "mirror.live_mode"},
		{"mirror: {live_group: %}", "readers", "a b", func(c *dataplane.Config) { c.Mirror.LiveGroup = "a b" }, "mirror.live_group"},
		{"mirror: {words_mode: %}", "0666", "0670", func(c *dataplane.Config) { c.Mirror.WordsMode = 0o670 }, "mirror.words_mode"},
		{"mirror: {words_mode: %}", "0660", "0661", func(c *dataplane.Config) { c.Mirror.WordsMode = 0o661 }, "mirror.words_mode"},
		{"mirror: {words_group: %}", "apps", "a b", func(c *dataplane.Config) { c.Mirror.WordsGroup = "a b" }, "mirror.words_group"},
		{"words: [%]", "a", "'a b'", func(c *dataplane.Config) { c.Words = []string{"a b"} }, "words"},
		{"words: [a, %]", "b", "a", func(c *dataplane.Config) { c.Words = []string{"a", "a"} }, "words"},
		{"mirror: {wait_group: %}", "readers", "a:b", func(c *dataplane.Config) { c.Mirror.WaitGroup = "a:b" }, "mirror.wait_group"},
		{"queue_pairs: [{name: a, device: d, gid_index: %}]", "255", "256", queuePair(func(q *dataplane.QueuePair) { q.GIDIndex = 256 }), "gid_index"},
		{"queue_pairs: [{name: a, device: d, send_depth: %}]", "32768", "32769", queuePair(func(q *dataplane.QueuePair) { q.SendDepth = 32769 }), "send_depth"},
		{"queue_pairs: [{name: a, device: d, send_depth: %}]", "1", "99999999999999999999", queuePair(func(q *dataplane.QueuePair) { q.SendDepth = math.MaxInt }), "send_depth"},
		{"queue_pairs: [{name: a, device: d, receives: %}]", "-1", "-2", queuePair(func(q *dataplane.QueuePair) { q.Receives = -2 }), "receives"},
		{"queue_pairs: [{name: a, device: d, receives: %}]", "32768", "32769", queuePair(func(q *dataplane.QueuePair) { q.Receives = 32769 }), "receives"},
		{"queue_pairs: [{name: a, device: d, message_size: %}]", "16777216", "16777217", queuePair(func(q *dataplane.QueuePair) { q.MessageSize = 16777217 }), "message_size"},
		{"queue_pairs: [{name: a, device: d, type: %}]", "ud", "uc", queuePair(func(q *dataplane.QueuePair) { q.Type = "uc" }), "type"},
		{"queue_pairs: [{name: a, device: d, source: %}]", "cq_ring", "ring", queuePair(func(q *dataplane.QueuePair) { q.Source = "ring" }), "source"},
		{"rdma: {efa: %}", "/a.so", "a.so", func(c *dataplane.Config) { c.RDMA.EFA = "a.so" }, "rdma.efa"},
		{"instance: %", strings.Repeat("a", 32), strings.Repeat("a", 33), func(c *dataplane.Config) { c.Instance = strings.Repeat("a", 33) }, "instance"},
		{"interfaces: [%]", "abcdefghijklmno", "abcdefghijklmnop", func(c *dataplane.Config) { c.Interfaces = []dataplane.Interface{{Name: "abcdefghijklmnop"}} }, "interface"},
	} {
		text := "backend: sim\n" + c.setting
		parse(t, strings.Replace(text, "%", c.in, 1))
		_, err := configs.Parse("x", []byte(strings.Replace(text, "%", c.out, 1)))
		var bad *configs.Error
		if !errors.As(err, &bad) || len(bad.Problems) != 1 || bad.Problems[0].Line != 2 || !strings.Contains(bad.Problems[0].Msg, c.outOfBounds) {
			t.Errorf("%s %s: error %v, want one on line 2", c.setting, c.out, err)
		}
		cfg := dataplane.Config{Backend: "sim"}
		c.set(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), c.outOfBounds) {
			t.Errorf("%s %s: Validate answers %v", c.setting, c.out, err)
		}
	}
}

// TestMistakeInALongLabelIsMarkedAtItsFlow: a mistake in a label whose name is too long to print whole
// is marked at the labels of its flow.
func TestMistakeInALongLabelIsMarkedAtItsFlow(t *testing.T) {
	_, err := configs.Parse("f.yaml", []byte("interfaces: [eth0]\nflows:\n  - name: web\n    match: any\n    labels:\n      "+strings.Repeat("-", 70)+": x\n"))
	var e *configs.Error
	if !errors.As(err, &e) || len(e.Problems) != 1 || e.Problems[0].Line != 6 && e.Problems[0].Line != 5 {
		t.Fatalf("%v: %+v", err, e)
	}
}
