//go:build vm

package vm

import (
	"path/filepath"
	"testing"

	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/times"
)

// rxeModules are a software RDMA device over any netdev, and the modules by which user space
// reaches it.
var rxeModules = []string{
	"veth", "crc32_generic", "ib_core", "ib_uverbs", "udp_tunnel", "ip6_udp_tunnel",
	"rdma_rxe", "iw_cm", "ib_cm", "configfs", "rdma_cm", "rdma_ucm",
}

// rdmaPackages are the distribution's own user space, beside the machine's glibc.
var rdmaPackages = []string{"libibverbs1", "ibverbs-providers", "ibverbs-utils", "libnl-3-200", "libnl-route-3-200"}

// TestXDPCountsExactlyBesideRXE runs a real kernel RDMA stack: libibverbs and rdma_rxe of the distribution. rxe
// has neither flows nor counters: everything that asks for them is told so, and XDP counts,
// in both directions. The software devices count on the slaves of a bond.
func TestXDPCountsExactlyBesideRXE(t *testing.T) {
	b := newBoot(t, linux612, append([]string{"bonding"}, rxeModules...)...)
	b.rdmaCore(t)
	b.flowtally(t)
	b.tests(t, "guest", "./internal/lab/vm/guest", "TestVerbs.*|TestPingpongOfRDMACoreWorks|TestCountedByXDPBesideRXE|TestRDMAAloneCountsNothingAndSaysWhy|TestRemovalOfAnUnusedDeviceDoesNotWait|TestDoctorSeesRXE|TestSlavesOfABondCountItsPackets|TestRXEOfASlaveNamesTheBond",
		"FLOWTALLY_GUEST_UVERBS="+b.uverbs(t))
	b.tests(t, "engine-xdp", "./dataplane/engine/xdp", "TestXDPCountsWhatTheLinearMatcherNames", "FLOWTALLY_SETS="+times.Brief("20", "8"), need.Env+"=all")
	res := b.run(t)
	report(t, res, "guest")
	report(t, res, "engine-xdp")
}

// TestQueuePairsOfRXEAreCountedExactly: rxe has queue pairs, whose completions are counted from ibv_poll_cq. A
// machine of its own, as its operations, 100,000 in the long form, take their time on an emulated CPU.
func TestQueuePairsOfRXEAreCountedExactly(t *testing.T) {
	b := newBoot(t, linux612, rxeModules...)
	b.rdmaCore(t)
	b.flowtally(t)
	b.tests(t, "guest", "./internal/lab/vm/guest", "TestQueuePairsCountEveryOperation|TestQueuePairsOfTwoInstancesCountTheirSides")
	report(t, b.run(t), "guest")
}

// uverbs packs the uverbs kernel in software, and returns its path.
func (b *boot) uverbs(t *testing.T) string {
	t.Helper()
	libs, err := ibvtest.Build(filepath.Join(b.bin, "soft"))
	if err != nil {
		t.Fatal(err)
	}
	const path = "/usr/lib/flowtally-soft/uverbs.so"
	if err := b.image.Program(libs.Kernel, path, b.roots...); err != nil {
		t.Fatal(err)
	}
	return path
}

// rdmaCore packs the distribution's rdma-core as far as rxe needs it: the libraries, of which
// libibverbs finds its providers by a directory of names, and two programs.
func (b *boot) rdmaCore(t *testing.T) {
	t.Helper()
	var dirs []string
	for _, p := range rdmaPackages {
		dirs = append(dirs, b.fetch(t, p))
	}
	b.roots = append(dirs, b.roots...)
	providers, programs := dirs[1], dirs[2]
	for _, provider := range []string{"rxe", "mlx5"} {
		file := filepath.Join("etc/libibverbs.d", provider+".driver")
		b.image.File(filepath.Join(providers, file), "/"+file, 0o644)
		found, err := filepath.Glob(filepath.Join(providers, "usr/lib/*/libibverbs/lib"+provider+"-rdmav*.so"))
		if err != nil || len(found) != 1 {
			t.Fatalf("the provider of %s: %v, %v", provider, found, err)
		}
		guest := found[0][len(providers):]
		if err := b.image.Program(found[0], guest, b.roots...); err != nil {
			t.Fatal(err)
		}
	}
	// libmlx5 too, which is asked about every device whether it offers DevX.
	for _, name := range []string{"libibverbs.so.1", "libmlx5.so.1"} {
		if err := b.image.Library(name, b.roots...); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"ibv_devinfo", "ibv_rc_pingpong"} {
		b.program(t, filepath.Join(programs, "usr/bin", name))
	}
}
