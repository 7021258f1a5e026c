//go:build emulated

package shm

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// The short form of all tests passes on arm64 too, under an emulator. That shows that the assembly
// computes the right values. It does not show that the order of memory accesses is right, because the
// emulator reorders less than an arm64 core. Run it by make test-emulated.
func TestAllTestsPassOnAnEmulatedArm64(t *testing.T) {
	need.Tool(t, "go", "qemu-aarch64")
	bin := filepath.Join(t.TempDir(), "shm.test")
	build := exec.Command("go", "test", "-c", "-o", bin, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH=arm64", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := exec.Command("qemu-aarch64", bin, "-test.short", "-test.timeout=15m", "-test.skip="+os.Getenv("FLOWTALLY_EMULATED_SKIP"))
	run.Env = append(os.Environ(), emulator+"=qemu-aarch64", "FLOWTALLY_TORN_READS=1e6",
		"FLOWTALLY_GROW_READS=1e6", "FLOWTALLY_HEADER_OPENS=2000", "FLOWTALLY_HOSTILE_TRIES=20000") // short, whatever this run asks for
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
