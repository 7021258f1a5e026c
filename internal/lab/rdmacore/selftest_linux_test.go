//go:build releases

package rdmacore

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/google/go-cmp/cmp"
)

// TestKernelSelftestCountsEqualTheTraffic runs the command for the first owner of a card, over the libraries of the
// oldest and of the newest release: the packets of the interface and the messages of two queue pairs are equal to the
// counts, and the device counts.
func TestKernelSelftestCountsEqualTheTraffic(t *testing.T) {
	need.Root(t)
	need.BPF(t)
	bin := filepath.Dir(program(t))
	for _, suite := range []string{Suites()[0], Suites()[2]} {
		t.Run(suite, func(t *testing.T) {
			root := release(t, suite).NewRoot(t)
			t.Log(root)
			near, far := newNetns(t), newNetns(t)
			pair, err := lab.NewPair(near, far, "eth0", "far0", lab.PairOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer pair.Close()
			for end, addr := range map[*lab.End]string{pair.A: "10.79.0.1/24", pair.B: "10.79.0.2/24"} {
				if err := end.AddAddr(netip.MustParsePrefix(addr)); err != nil {
					t.Fatal(err)
				}
			}
			e := ibvtest.Env{Devices: []ibvtest.Device{{Name: "mlx5_0", Netdev: "eth0"}}}
			var stdout, stderr bytes.Buffer
			err = near.Do(func() error {
				return root.Flowtally(t.Context(), bin, e.Environ(), []string{"eth0"}, &stdout, &stderr,
					"selftest", "--interface", "eth0", "--peer", "10.79.0.2", "--rdma-device", "mlx5_0", "--gid-index", "0", "--yes", "--strict", "-o", "json")
			})
			t.Logf("%s%s", &stderr, &stdout)
			if err != nil {
				t.Fatal(err)
			}
			var r struct {
				Parts []struct {
					Name, Result, Source string
					Sent, Counted        uint64
					Rejected             []string
				}
			}
			if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
				t.Fatal(err)
			}
			got := make(map[string]string)
			for _, p := range r.Parts {
				got[p.Name] = fmt.Sprintf("%s: %d of %d by %s", p.Result, p.Counted, p.Sent, p.Source)
				if len(p.Rejected) > 0 {
					got[p.Name] += ", not " + strings.Split(p.Rejected[0], ":")[0]
				}
			}
			want := map[string]string{
				"egress": "exact: 1000 of 1000 by rdma:mlx5_0/devx", "egress-tagged": "exact: 1000 of 1000 by rdma:mlx5_0/devx",
				"ingress echo":   "exact: 1000 of 1000 by xdp:eth0/tcx, not rdma", // a device does not tell an ICMP type of 0
				"rdma near-sent": "exact: 1000 of 1000 by rdma:mlx5_0/cq_ring", "rdma far-received": "exact: 1000 of 1000 by rdma:mlx5_0/cq_ring",
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func newNetns(t *testing.T) *lab.Netns {
	t.Helper()
	ns, err := lab.NewNetns("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return ns
}
