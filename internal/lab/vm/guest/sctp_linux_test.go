//go:build vm

package guest

import (
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/flowtally/flowtally/xdp"
)

// TestSCTPLeavesWhole sends a stream of SCTP from a device that leaves its segmentation to the kernel, so that the
// kernel takes the buffers apart behind the program of TCX egress. FLOWTALLY_GUEST_PROGRAM names the program. The
// kernel does not survive the one that pulls.
func TestSCTPLeavesWhole(t *testing.T) {
	r := newRoute(t)
	r.must(r.r1.SetFeatures(false, "tx-sctp-segmentation"))
	switch name := os.Getenv("FLOWTALLY_GUEST_PROGRAM"); name {
	case "flowtally":
		_, err := newTally(t, xdp.Options{}).attach(r.r1, xdp.AttachOptions{Egress: true})
		r.must(err)
	case "empty", "pull":
		spec := map[string]*ebpf.ProgramSpec{"empty": emptyTCX, "pull": pull}[name]
		detach, err := attachTCX(spec, r.r1, ebpf.AttachTCXEgress)
		r.must(err)
		defer detach()
	default:
		t.Fatalf("FLOWTALLY_GUEST_PROGRAM is %q", name)
	}
	start := time.Now()
	r.must(sctp.send(r.router, r.receiver, addrD0, streamPort, 60_000))
	t.Logf("60,000 bytes arrived after %v", time.Since(start).Round(time.Millisecond))
}
