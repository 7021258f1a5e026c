package soft

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/trust"
)

const (
	// preloadedEnv has the process that executed itself by Kernel.Preload. Its children are preloaded too, and find
	// the number of another process.
	preloadedEnv = "FLOWTALLY_PRELOADED"
	sysfsEnv     = ibvtest.EnvSysfs
)

// Kernel is the uverbs kernel in software, below the RDMA libraries that this host has installed. The zero value is
// ready for Preload.
type Kernel struct {
	err error // why it is not preloaded
}

// Preload executes the test binary again with the kernel in LD_PRELOAD. Call it in TestMain before lab.Isolate, which
// executes the binary again, too. It returns in the new process. If that cannot be, it returns in this one, and Need
// ends the tests that ask for the kernel. Preload needs no privilege.
func (k *Kernel) Preload() {
	if os.Getenv(preloadedEnv) == "" {
		k.err = preload() // it returns only with an error
	}
}

func preload() error {
	if !cgo {
		return errors.New("this test was built without cgo")
	}
	kernel, err := buildKernel()
	if err != nil {
		return err
	}
	sysfs, err := os.MkdirTemp("", "flowtally-sysfs-")
	if err != nil {
		return fmt.Errorf("making a directory for sysfs: %w", err)
	}
	os.Setenv("LD_PRELOAD", kernel)
	os.Setenv(sysfsEnv, sysfs)
	os.Setenv(preloadedEnv, strconv.Itoa(os.Getpid()))
	err = unix.Exec("/proc/self/exe", os.Args, os.Environ())
	return errors.Join(fmt.Errorf("executing this program with %s: %w", kernel, err), os.RemoveAll(sysfs))
}

// buildKernel returns the kernel in the directory FLOWTALLY_SOFT, or in the user's cache.
func buildKernel() (string, error) {
	if dir := os.Getenv("FLOWTALLY_SOFT"); dir != "" {
		libs, err := ibvtest.Build(dir)
		return libs.Kernel, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("looking for the user's cache: %w", err)
	}
	dir := filepath.Join(cache, "flowtally-uverbs")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making the cache of the uverbs kernel: %w", err)
	}
	// sudo may keep the HOME of a user, who must not choose what root loads: neither here, nor by a directory above.
	f, why, err := trust.Open(dir, func(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() })
	if err != nil {
		return "", fmt.Errorf("looking at the cache of the uverbs kernel: %w", err)
	}
	if why != "" {
		return "", fmt.Errorf("the cache of the uverbs kernel: %s; or set FLOWTALLY_SOFT to a directory of your own", why)
	}
	f.Close()
	return ibvtest.BuildKernel(dir)
}

// Need ends the test if the kernel is not preloaded or the host has no rdma-core.
func (k *Kernel) Need(t testing.TB) {
	t.Helper()
	if !cgo {
		need.Missing(t, "cgo", "this test was built without it, or not for Linux")
	}
	need.Tool(t, "gcc")
	need.RDMACore(t)
	if k.err != nil {
		t.Fatalf("the uverbs kernel is not preloaded: %v", k.err)
	}
	if os.Getenv(preloadedEnv) == "" {
		t.Fatal("the uverbs kernel is not preloaded: TestMain does not call Kernel.Preload")
	}
}

// Close removes what Preload made, at the end of TestMain. A child of the tests has nothing to remove.
func (k *Kernel) Close() error {
	if os.Getenv(preloadedEnv) != strconv.Itoa(os.Getpid()) {
		return nil
	}
	return os.RemoveAll(os.Getenv(sysfsEnv))
}

// libraries are those of the host. The kernel's driver for ConnectX has the devices whose names begin with mlx5.
func (k *Kernel) libraries(t testing.TB) (rdma dataplane.RDMAConfig, prefix string) {
	t.Helper()
	k.Need(t)
	return dataplane.RDMAConfig{}, "mlx5_"
}
