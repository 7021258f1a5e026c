//go:build vm

package vm

import (
	"path/filepath"
	"testing"
)

// TestCountsInADispatcherOnLinux612 counts in the dispatcher of the distribution's libxdp. The kernel is one with TCX.
func TestCountsInADispatcherOnLinux612(t *testing.T) {
	b := newBoot(t, linux612, "veth")
	b.xdpTools(t)
	b.cpus = 1 // QEMU's emulation of a second one runs code for a moment longer that the kernel has patched, as it does for XDP
	b.tests(t, "xdp", "./xdp", "TestProgramsCallOnlyHarmlessFunctions|TestDispatcherCountsEveryPacketOverChangesOfEitherSide|TestEachPacketCountsOnceWhileTheDispatcherChanges|TestMoveToADispatcherMissesNoPacket|TestDispatcherOfAMovedInterfaceStopsCounting")
	b.tests(t, "engine", "./dataplane/engine", "TestInstanceInADispatcherCountsEachPacketOnce|TestDetachEmptiesThePlaceInTheDispatcher")
	res := b.run(t)
	report(t, res, "xdp")
	report(t, res, "engine")
}

// TestCountsInADispatcherOnLinux61 is TestCountsInADispatcherOnLinux612 on the oldest supported kernel, which has no
// TCX to move to.
func TestCountsInADispatcherOnLinux61(t *testing.T) {
	onlyLong(t) // make test-root has the dispatcher on the kernel of the host
	b := newBoot(t, linux61, "veth")
	b.xdpTools(t)
	b.cpus = 1 // QEMU's emulation of a second one runs code for a moment longer that the kernel has patched, as it does for XDP
	b.tests(t, "xdp", "./xdp", "TestDispatcherCountsEveryPacketOverChangesOfEitherSide")
	b.tests(t, "engine", "./dataplane/engine", "TestWithoutTCXAnInstanceCountsInTheDispatcher")
	res := b.run(t)
	report(t, res, "xdp")
	report(t, res, "engine")
}

// xdpTools packs the distribution's xdp-tools, with the programs that they load.
func (b *boot) xdpTools(t *testing.T) {
	t.Helper()
	var dirs []string
	for _, p := range []string{"xdp-tools", "libxdp1", "libbpf1", "libelf1", "zlib1g"} {
		dirs = append(dirs, b.fetch(t, p))
	}
	b.roots = append(dirs, b.roots...)
	for _, name := range []string{"xdp-filter", "xdp-loader"} {
		b.program(t, filepath.Join(dirs[0], "usr/sbin", name))
	}
	objects, err := filepath.Glob(filepath.Join(dirs[1], "usr/lib/*/bpf/*.o"))
	if err != nil || len(objects) == 0 {
		t.Fatalf("programs of libxdp: %v, %v", objects, err)
	}
	for _, o := range objects {
		b.image.File(o, o[len(dirs[1]):], 0o644)
	}
}
