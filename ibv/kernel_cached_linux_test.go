//go:build releases && cgo

package ibv

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab/rdmacore"
)

// Reference 002: PREFER_CACHED prefers "reading the values from driver cache, else it will do volatile hardware access".
// mlx5 has no such cache, so that no value tells whether the flag arrives: the driver of this kernel has one. A read
// without the flag fills it.
func TestKernelPreferCachedReadsTheCacheOfTheDriver(t *testing.T) {
	overKernel(t, ibvtest.Env{Mutant: "read_cache"}, rdmacore.Suites(), func(t *testing.T) {
		b := newBench(t, newWire(t))
		n := b.counters(both...)
		b.flow(n, b.toUs())
		b.send(frame100(b), 2)
		b.wants(n, 2, 200)

		b.send(frame100(b), 3)
		for _, c := range []struct {
			read  string
			flags ReadFlags
			want  []uint64
		}{
			{"preferring the cache", ReadCountersPreferCached, []uint64{2, 200}},
			{"from the hardware", 0, []uint64{5, 500}},
			{"preferring the cache that the last read has filled", ReadCountersPreferCached, []uint64{5, 500}},
		} {
			got := make([]uint64, 2)
			b.check(n.Read(got, c.flags))
			if !slices.Equal(got, c.want) {
				t.Errorf("a read %s returns %d, want %d", c.read, got, c.want)
			}
		}
	})
}

// Without the flag in the call, a build of this package fails the test above, and by its first value.
func TestKernelPreferCachedFindsAReadThatDropsTheFlag(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the package again")
	}
	const line, dropped = "n.ctx.v.readCounters(n.h, dst, flags)", "n.ctx.v.readCounters(n.h, dst, flags&0)"
	source := must(os.ReadFile("counters.go"))(t)
	if n := strings.Count(string(source), line); n != 1 {
		t.Fatalf("counters.go has %d times %s", n, line)
	}
	dir := t.TempDir()
	mutant := filepath.Join(dir, "counters.go")
	overlay := filepath.Join(dir, "overlay.json")
	replaced := map[string]string{must(filepath.Abs("counters.go"))(t): mutant}
	for name, data := range map[string][]byte{
		mutant:  []byte(strings.Replace(string(source), line, dropped, 1)),
		overlay: must(json.Marshal(map[string]any{"Replace": replaced}))(t),
	} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	const of = "TestKernelPreferCachedReadsTheCacheOfTheDriver"
	newest := rdmacore.Suites()[len(rdmacore.Suites())-1]
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-tags=releases", "-overlay", overlay, "-run", "^"+of+"$/^"+newest+"$", ".")
	cmd.Env = append(os.Environ(), rdmacore.RanEnv+"=")
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		t.Errorf("%s passes", of)
	case !strings.Contains(string(out), "a read preferring the cache returns [5 500], want [2 200]"):
		t.Errorf("%s fails by something else: %v\n%s", of, err, out)
	}
}
