package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab/soft"
)

// uverbs is below the host's RDMA libraries.
var uverbs soft.Kernel

// software has the shim in front of the host's libraries, for what no kernel can cause.
var software soft.Libraries

func TestMain(m *testing.M) {
	uverbs.Preload()
	code := m.Run()
	if err := errors.Join(uverbs.Close(), software.Close()); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// The whole program over a NIC in software, which takes no privilege: queue pairs need
// none, and its netdev is the loopback.
func TestExampleCountsOverASoftwareNIC(t *testing.T) {
	uverbs.Need(t)
	// The host's libraries have completion counters from rdma-core 65 on, and those of an EFA alone.
	counters := software.Shimmed(t)
	for _, tt := range []struct {
		source  string
		rdma    dataplane.RDMAConfig
		without []string
	}{
		{source: "comp_cntr+external", rdma: counters},
		{source: "comp_cntr", rdma: counters, without: []string{"efadv"}},
		{source: "cq_ring"},
		{source: "poll_cq", rdma: dataplane.RDMAConfig{MLX5: "/nonexistent/libmlx5.so.1"}},
	} {
		t.Run(tt.source, func(t *testing.T) {
			env := ibvtest.Env{Devices: []ibvtest.Device{{Name: "mlx5_0", Netdev: "lo"}}, Without: tt.without}
			env.Set(t.Setenv)
			cfg := config("mlx5_0")
			cfg.RDMA = tt.rdma
			cfg.Mirror = dataplane.MirrorConfig{Path: filepath.Join(t.TempDir(), "pairs.mirror"), Counters: 64, History: -1}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var out bytes.Buffer
			if err := run(ctx, &out, cfg, 300); err != nil {
				t.Fatal(err)
			}
			want := `far: RTS on mlx5_0, counted by ` + tt.source + `
near: RTS on mlx5_0, counted by ` + tt.source + `
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
