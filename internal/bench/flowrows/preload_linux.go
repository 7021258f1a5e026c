package flowrows

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/ibv/ibvtest"
)

// preloadedEnv has the process that executed itself by Preload.
const preloadedEnv = "FLOWTALLY_BENCH_PRELOADED"

// Preload executes this program again with the uverbs kernel in software below the host's RDMA libraries, for the rows
// with a NIC, and returns in the new process. Without the kernel in bin it returns in this one, and these rows fail. The
// programs that rows start are not preloaded. The caller calls end when the process ends.
func Preload(bin string) (end func() error, err error) {
	none := func() error { return nil }
	switch os.Getenv(preloadedEnv) {
	case strconv.Itoa(os.Getpid()):
		sysfs := os.Getenv(ibvtest.EnvSysfs)
		return func() error { return os.RemoveAll(sysfs) }, os.Unsetenv("LD_PRELOAD")
	case "":
	default:
		return none, nil // a program that a row started
	}
	kernel := ibvtest.LibsIn(filepath.Join(bin, "ibvtest")).Kernel
	if _, err := os.Stat(kernel); err != nil {
		return none, nil
	}

	sysfs, err := os.MkdirTemp("", "flowtally-sysfs-")
	if err != nil {
		return none, fmt.Errorf("making a directory for sysfs: %w", err)
	}
	env := append(os.Environ(), "LD_PRELOAD="+kernel, ibvtest.EnvSysfs+"="+sysfs, preloadedEnv+"="+strconv.Itoa(os.Getpid()))
	err = unix.Exec("/proc/self/exe", os.Args, env)
	return none, errors.Join(fmt.Errorf("executing this program with %s: %w", kernel, err), os.RemoveAll(sysfs))
}
