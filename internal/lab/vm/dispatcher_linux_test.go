//go:build vm

package vm

import (
	"path/filepath"
	"testing"
)

// TestDispatcher counts in the dispatcher of the distribution's libxdp. The kernel is one with TCX.
func TestDispatcher(t *testing.T) {
	b := newBoot(t, "linux-image-6.12-amd64", "veth")
	b.xdpTools(t)
	b.tests(t, "xdp", "./xdp", "TestDispatcher|TestDispatcherUnderTraffic|TestDispatcherMoves")
	report(t, b.run(t), "xdp")
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
