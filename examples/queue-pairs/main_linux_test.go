package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab/soft"
)

var software soft.Libraries

func TestMain(m *testing.M) {
	code := m.Run()
	if err := software.Close(); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// The whole program over a NIC in software, which takes no privilege: queue pairs need
// none, and its netdev is the loopback.
func TestExampleCountsOverASoftwareNIC(t *testing.T) {
	libs := software.Get(t)
	for _, tt := range []struct {
		source  string
		without []string
	}{
		{source: "comp_cntr+external"},
		{source: "comp_cntr", without: []string{"efadv"}},
		{source: "cq_ring", without: []string{"comp_cntr"}},
		{source: "poll_cq", without: []string{"comp_cntr", "cq_ring"}},
	} {
		t.Run(tt.source, func(t *testing.T) {
			env := ibvtest.Env{Devices: []ibvtest.Device{{Name: "swnic0", Netdev: "lo"}}, Without: tt.without}
			env.Set(t.Setenv)
			cfg := config("swnic0")
			cfg.RDMA = dataplane.RDMAConfig{Library: libs.Verbs, MLX5: libs.MLX5, EFA: libs.EFA}
			cfg.Mirror = dataplane.MirrorConfig{Path: filepath.Join(t.TempDir(), "pairs.mirror"), Counters: 64, History: -1}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var out bytes.Buffer
			if err := run(ctx, &out, cfg, 300); err != nil {
				t.Fatal(err)
			}
			want := `far: RTS on swnic0, counted by ` + tt.source + `
near: RTS on swnic0, counted by ` + tt.source + `
sent: 300 completions, 0 errors
written: 300 completions, 0 errors
received: 300 completions, 0 errors
`
			if diff := cmp.Diff(want, out.String()); diff != "" {
				t.Errorf("want -, printed +:\n%s", diff)
			}
		})
	}
}
