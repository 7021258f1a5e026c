package configs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/configs"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/oracle/gen"
)

// addresses are compared whole: they have no fields to look into.
var addresses = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

func checkRoundTrip(t *rapid.T) {
	word := func(label string, words ...string) string { return rapid.SampledFrom(words).Draw(t, label) }
	text := rapid.OneOf(rapid.SampledFrom([]string{"", "~", "null", "true", "0644", "- x", "a: b", "#", " x ", "é\n", "\x01", "'", `"`, "*a", "\u2028", "\u0085", "\ufeff"}), rapid.String())
	upTo := func(label string, most int) int {
		return rapid.OneOf(rapid.Just(0), rapid.IntRange(0, most)).Draw(t, label)
	}
	cfg := dataplane.Config{
		Instance: rapid.StringMatching(`|[a-z0-9-]{1,32}`).Draw(t, "instance"),
		Backend:  rapid.SampledFrom(append(flow.Backends(), "")).Draw(t, "backend"),
		Start:    dataplane.StartMode(word("start", "", "strict", "degraded")),
		Mirror: dataplane.MirrorConfig{
			Path: text.Draw(t, "path"), Counters: upTo("counters", 1<<24), LatencyCounters: upTo("latency", 1<<20), History: upTo("history", 1<<24+1) - 1,
			HistoryPeriod: time.Duration(upTo("history period", 1<<62)), Mode: rapid.SampledFrom([]fs.FileMode{0, 0o600, 0o644, 0o640, 0o200, 0o604}).Draw(t, "mode"),
		},
		Poll: dataplane.PollConfig{Busy: rapid.Bool().Draw(t, "busy"), CPU: upTo("cpu", 1<<31-1)},
		XDP:  dataplane.XDPConfig{PinDir: text.Draw(t, "pin dir"), MaxFlows: upTo("max flows", dataplane.MostFlows), WorstCost: upTo("worst cost", 1<<14), KeepPins: rapid.Bool().Draw(t, "keep pins"), TCX: rapid.SampledFrom([]string{"", "first", "last"}).Draw(t, "tcx"), Beside: rapid.SampledFrom([][]dataplane.Beside{nil, {"tcx"}, {"refuse"}, {"tcx", "refuse"}}).Draw(t, "beside")},
		RDMA: dataplane.RDMAConfig{
			Library: word("library", "", "/lib/x.so", "/#", "/a: b"), MLX5: word("mlx5", "", "/é", "/'"), EFA: word("efa", "", "/-"),
			CommandsPerSecond: upTo("commands", 1_000_000), Steal: rapid.Bool().Draw(t, "steal"), Audit: rapid.Bool().Draw(t, "audit"),
		},
	}
	if rapid.Bool().Draw(t, "period") {
		cfg.Poll.Period = time.Duration(rapid.Int64Range(100_000, 1<<62).Draw(t, "poll period"))
		cfg.Poll.IdlePeriod = time.Duration(rapid.Int64Range(int64(cfg.Poll.Period), 1<<62).Draw(t, "idle period"))
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "interfaces") {
		cfg.Interfaces = append(cfg.Interfaces, dataplane.Interface{
			Name: word("interface", "eth", "1", "true", "~", "é", "'", "-", "#") + fmt.Sprint(i), Mode: dataplane.Mode(word("mode", "", "auto", "native", "generic", "tcx")),
			Optional: rapid.Bool().Draw(t, "optional"),
		})
		if in := &cfg.Interfaces[i]; i > 0 { // each flow is counted on the first one
			in.Name = word("pattern", "", "*", "en[op]?s", "[^a-z]", `\\`) + in.Name
			in.Direction = rapid.SampledFrom(append(dataplane.InterfaceDirections(), "")).Draw(t, "only")
		}
	}
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	cfg.Flows = gen.Flows(rng, rapid.IntRange(0, 5).Draw(t, "flows"))
	if len(cfg.Flows) == 0 {
		cfg.Flows = nil
	}
	for i := range cfg.Flows {
		f := &cfg.Flows[i]
		f.Name = word("name", "null", "1e3", "yes", "0x1:", "a/b", "A.-_") + fmt.Sprint(i)
		f.Backend = rapid.SampledFrom(append(flow.Backends(), "")).Draw(t, "flow backend")
		f.Latency = rapid.Bool().Draw(t, "latency")
		if rapid.Bool().Draw(t, "bound") {
			f.Interface = cfg.Interfaces[0].Name
		}
		if rapid.Bool().Draw(t, "labelled") {
			f.Labels = map[string]string{word("key", "k", "true", "_1", "null"): rapid.SampledFrom([]string{"", "~", "a: b", "é", " ", "#x", "<<"}).Draw(t, "label")}
		}
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "sets") {
		s := dataplane.Set{Name: word("set", "null", "1e3", "yes", "0x1", "A.-_") + fmt.Sprint(i)}
		for _, text := range rapid.SampledFrom([][]string{nil, {"0.0.0.0/0"}, {"1.2.3.4/32", "10.0.0.0/8", "::/128", "::1/128", "2001:db8::/32"}}).Draw(t, "elements") {
			s.Elements = append(s.Elements, netip.MustParsePrefix(text))
		}
		cfg.Sets = append(cfg.Sets, s)
		cfg.Flows = append(cfg.Flows, flow.MustParse("named/"+s.Name, "ipv4 src @"+s.Name+" dst != @"+s.Name))
	}
	cfg.Mirror.LiveMode = rapid.SampledFrom([]fs.FileMode{0, 0o600, 0o660, 0o666, 0o200}).Draw(t, "live mode")
	cfg.Mirror.LiveGroup = rapid.SampledFrom([]string{"", "0", "readers", "~"}).Draw(t, "live group")
	cfg.Mirror.WaitGroup = rapid.SampledFrom([]string{"", "0", "~", "null", "é", "#x", "'"}).Draw(t, "wait group")
	cfg.Mirror.WordsMode = rapid.SampledFrom([]fs.FileMode{0, 0o600, 0o660, 0o666, 0o200}).Draw(t, "words mode")
	cfg.Mirror.WordsGroup = rapid.SampledFrom([]string{"", "0", "~", "null"}).Draw(t, "words group")
	cfg.Words = rapid.SampledFrom([][]string{nil, {"words-null"}, {"words-1e3", "words/a"}}).Draw(t, "words")
	cfg.QueuePairs = drawQueuePairs(t)
	if err := cfg.Validate(); err != nil {
		t.Fatalf("drawn: %v", err)
	}
	data, err := configs.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	back, err := configs.Parse("marshalled", data)
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	if diff := cmp.Diff(cfg, back, addresses); diff != "" {
		t.Fatalf("(-drawn +read):\n%s\n%s", diff, data)
	}
}

// drawQueuePairs draws queue pairs that validate among whatever flows.
func drawQueuePairs(t *rapid.T) (pairs []dataplane.QueuePair) {
	upTo := func(label string, least, most int) int {
		return rapid.OneOf(rapid.Just(0), rapid.IntRange(least, most)).Draw(t, label)
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "queue pairs") {
		q := dataplane.QueuePair{
			Name:   rapid.SampledFrom([]string{"null", "1e3", "yes", "a/b"}).Draw(t, "pair name") + fmt.Sprint(i),
			Device: rapid.SampledFrom([]string{"rxe0", "~", "null", "0x1", "'", "#", "é"}).Draw(t, "device"),
			Port:   uint8(upTo("port", 0, 255)), GIDIndex: upTo("gid index", 0, 255), SendDepth: upTo("send depth", 0, 1<<15), Receives: upTo("receives", -1, 1<<15),
			MessageSize: upTo("message size", 0, 1<<24), Type: rapid.SampledFrom(append(dataplane.QueuePairTypes(), "")).Draw(t, "type"),
			Source: rapid.SampledFrom(append(dataplane.CompletionSources(), "")).Draw(t, "source"),
		}
		operations := []dataplane.Operation{dataplane.Send, dataplane.Recv}
		if q.WithDefaults().Type == dataplane.RC {
			operations = append(operations, dataplane.RDMARead, dataplane.RDMAWrite)
			if s := q.WithDefaults().Source; s == dataplane.SourceAuto || s == dataplane.SourceCompCntr {
				operations = dataplane.Operations()
			}
		}
		for _, op := range rapid.Permutation(operations).Draw(t, "operations") {
			switch last := len(q.Counters) - 1; rapid.IntRange(0, 2).Draw(t, "feeds") {
			case 0:
				q.Counters = append(q.Counters, dataplane.CompletionCounter{
					Name: fmt.Sprintf("k%d.%d", i, last), Operations: []dataplane.Operation{op},
				})
			case 1:
				if last >= 0 {
					q.Counters[last].Operations = append(q.Counters[last].Operations, op)
				}
			}
		}
		switch rapid.IntRange(0, 2).Draw(t, "end") {
		case 0:
			if q.Type != dataplane.RawPacket {
				q.Connect = q.Name
			}
		case 1:
			if q.Type != dataplane.RawPacket {
				q.Peer = &dataplane.QueuePairAddress{
					GID: netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.ByteRange(1, 0xfe), 16, 16).Draw(t, "gid"))), LID: uint16(upTo("lid", 0, 0xbfff)),
					QPN: uint32(rapid.IntRange(2, 1<<24-2).Draw(t, "qpn")), PSN: uint32(upTo("psn", 0, 1<<24-1)), QKey: rapid.Uint32().Draw(t, "qkey"),
					Addr: rapid.Uint64().Draw(t, "addr"), RKey: rapid.Uint32().Draw(t, "rkey"),
				}
			}
		}
		pairs = append(pairs, q)
	}
	return pairs
}

func TestMarshaledConfigurationParsesToAnEqualOne(t *testing.T) { rapid.Check(t, checkRoundTrip) }

func FuzzRoundTrip(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkRoundTrip)) }

// No input panics. An accepted configuration validates and is written in a form that reads back as
// the same. Each mistake has a place in the text: Validate finds no further mistake, so that the
// rules here and there do not drift apart.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/bad/*.yaml", "*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("%s: no file, %v", pattern, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Add([]byte("~"))
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := configs.Parse("fuzz", data)
		var bad *configs.Error
		switch {
		case err == nil:
		case !errors.As(err, &bad) || len(bad.Problems) == 0 || err.Error() == "":
			t.Fatalf("error %T %v", err, err)
		default:
			for _, p := range bad.Problems {
				if p.Line < 1 || p.Col < 1 || p.Width < 1 || p.Msg == "" {
					t.Fatalf("problem without a place: %+v", p)
				}
			}
			return
		}
		if err := cfg.Validate(); err != nil {
			t.Fatal(err)
		}
		text, err := configs.Marshal(cfg)
		if err != nil {
			t.Fatal(err)
		}
		back, err := configs.Parse("marshalled", text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if diff := cmp.Diff(cfg, back, addresses); diff != "" {
			t.Fatalf("(-read +read back):\n%s\n%s", diff, text)
		}
	})
}
