package configs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/configs"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/linear/gen"
)

func checkRoundTrip(t *rapid.T) {
	word := func(label string, words ...string) string { return rapid.SampledFrom(words).Draw(t, label) }
	text := rapid.OneOf(rapid.SampledFrom([]string{"", "~", "null", "true", "0644", "- x", "a: b", "#", " x ", "é\n", "\x01", "'", `"`, "*a", "\u2028", "\u0085", "\ufeff"}), rapid.String())
	upTo := func(label string, most int) int {
		return rapid.OneOf(rapid.Just(0), rapid.IntRange(0, most)).Draw(t, label)
	}
	cfg := dataplane.Config{
		Instance: rapid.StringMatching(`|[a-z0-9-]{1,32}`).Draw(t, "instance"),
		Backend:  word("backend", "", "auto", "rdma", "xdp", "sim"),
		Mirror: dataplane.MirrorConfig{
			Path: text.Draw(t, "path"), Counters: upTo("counters", 1<<24), LatencyCounters: upTo("latency", 1<<20), History: upTo("history", 1<<24+1) - 1,
			HistoryPeriod: time.Duration(upTo("history period", 1<<62)), Mode: rapid.SampledFrom([]fs.FileMode{0, 0o600, 0o644, 0o640, 0o200, 0o604}).Draw(t, "mode"),
		},
		Poll: dataplane.PollConfig{Busy: rapid.Bool().Draw(t, "busy"), CPU: upTo("cpu", 1<<31-1)},
		XDP:  dataplane.XDPConfig{PinDir: text.Draw(t, "pin dir"), MaxFlows: upTo("max flows", 1<<22), KeepPins: rapid.Bool().Draw(t, "keep pins")},
		RDMA: dataplane.RDMAConfig{
			Library: word("library", "", "/lib/x.so", "/#", "/a: b"), MLX5: word("mlx5", "", "/é", "/'"),
			CommandsPerSecond: upTo("commands", 1_000_000), Steal: rapid.Bool().Draw(t, "steal"), Audit: rapid.Bool().Draw(t, "audit"),
		},
	}
	if rapid.Bool().Draw(t, "period") {
		cfg.Poll.Period = time.Duration(rapid.Int64Range(100_000, 1<<62).Draw(t, "poll period"))
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "interfaces") {
		cfg.Interfaces = append(cfg.Interfaces, dataplane.Interface{
			Name: word("interface", "eth", "1", "true", "~", "é", "'", "-", "#") + fmt.Sprint(i), Mode: word("mode", "", "auto", "native", "generic"),
		})
	}
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	cfg.Flows = gen.Flows(rng, rapid.IntRange(0, 5).Draw(t, "flows"))
	if len(cfg.Flows) == 0 {
		cfg.Flows = nil
	}
	for i := range cfg.Flows {
		f := &cfg.Flows[i]
		f.Name = word("name", "null", "1e3", "yes", "0x1:", "a/b", "A.-_") + fmt.Sprint(i)
		f.Backend = word("flow backend", "", "auto", "rdma", "xdp", "sim")
		f.Latency = rapid.Bool().Draw(t, "latency")
		if rapid.Bool().Draw(t, "bound") {
			f.Interface = cfg.Interfaces[0].Name
		}
		if rapid.Bool().Draw(t, "labelled") {
			f.Labels = map[string]string{word("key", "k", "true", "_1", "null"): rapid.SampledFrom([]string{"", "~", "a: b", "é", " ", "#x", "<<"}).Draw(t, "label")}
		}
	}
	data, err := configs.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	back, err := configs.Parse("marshalled", data)
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	if diff := cmp.Diff(cfg, back); diff != "" {
		t.Fatalf("(-drawn +read):\n%s\n%s", diff, data)
	}
}

func TestRoundTrip(t *testing.T) { rapid.Check(t, checkRoundTrip) }

func FuzzRoundTrip(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkRoundTrip)) }

// No input panics. What is accepted validates and is written in a form that
// reads back as the same. Each mistake has a place in the text: none is found
// only by Validate, so that the rules here and there do not drift apart.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/bad/*.yaml", "default.yaml"} {
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
		if diff := cmp.Diff(cfg, back); diff != "" {
			t.Fatalf("(-read +read back):\n%s\n%s", diff, text)
		}
	})
}
