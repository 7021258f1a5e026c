//go:build releases

package rdmacore

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/archive"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/soft"
)

// The judges are programs that know nothing of flowtally, as Debian packages them: the tools and the suite of rdma-core,
// perftest, and libfabric. `make test-judges` runs them over the uverbs kernel in software, in a root of its own for each suite.
// testdata/judges/passes.txt lists the cases that pass, and known.txt those that do not, each with its reason.

// court is a root with the judges of a suite.
type court struct {
	*Root
	ns      *lab.Netns
	dirs    map[string]string // of packages
	preload []string          // the environment for a program with a kernel of its own
	env     []string
}

var packagesOfJudges = make(map[string]map[string]string)

// judgePackages gets the packages of the judges of a suite once, as release does. Two are named because no package depends on
// them by a name that begins as a library, or depends on them early (Pre-Depends): zlib1g and python3-minimal.
func judgePackages(t *testing.T, suite string) map[string]string {
	t.Helper()
	if dirs := packagesOfJudges[suite]; dirs != nil {
		return dirs
	}
	dir, err := archive.DefaultDir()
	if err != nil {
		t.Fatal(err)
	}
	s, err := archive.Cache{Dir: dir, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}.Suite(t.Context(), suite)
	var dirs map[string]string
	if err == nil {
		dirs, err = s.WithLibraries(t.Context(),
			"ibverbs-utils", "perftest", "python3", "python3-minimal", "python3-pyverbs", "iproute2", "libfabric1", "libfabric-bin", "zlib1g")
	}
	if err != nil {
		need.Missing(t, "archive", err.Error())
	}
	packagesOfJudges[suite] = dirs
	return dirs
}

func newCourt(t *testing.T, suite string, libs ibvtest.Libs) *court {
	t.Helper()
	c := &court{Root: release(t, suite).NewRoot(t), ns: netdevs(t)}
	t.Log(c.Root)
	c.preload = c.Preload(t, libs.Kernel, "v0", "v1")
	devices := ibvtest.Env{Devices: []ibvtest.Device{{Name: "mlx5_0", Netdev: "v0"}, {Name: "efa_0", Netdev: "v1"}}}
	c.env = append(devices.Environ(), "PATH=/usr/bin:/usr/sbin", "HOME=/tmp", "PYTHONDONTWRITEBYTECODE=1", "PYTHONHASHSEED=0")

	c.dirs = judgePackages(t, suite)
	if err := c.seat(libs); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"addr", "add", "192.0.2.1/24", "dev", "v0"}, {"addr", "add", "198.51.100.1/24", "dev", "v1"}} {
		if out, err := c.run(t.Context(), nil, append([]string{"ip"}, args...)...); err != nil {
			t.Fatalf("ip %q: %v\n%s", args, err, out)
		}
	}
	return c
}

// seat fills the root with the judges.
func (c *court) seat(libs ibvtest.Libs) error {
	for _, link := range []string{"bin", "sbin"} {
		if err := os.MkdirAll(filepath.Join(c.Dir, "usr", link), 0o755); err != nil {
			return err
		}
		if err := os.Symlink("usr/"+link, filepath.Join(c.Dir, link)); err != nil {
			return err
		}
	}
	for name, dir := range c.dirs {
		if c.Release.dirs[name] != "" {
			continue
		}
		for _, d := range []string{"usr/bin", "usr/sbin", "bin", "sbin", "usr/lib", "lib", "etc"} {
			if err := copyTree(filepath.Join(dir, d), filepath.Join(c.Dir, d)); err != nil {
				return err
			}
		}
	}
	// The installation of bookworm's libpsm-infinipath1 makes this link (update-alternatives).
	psm, err := filepath.Glob(filepath.Join(c.Dir, "usr/lib/libpsm1/libpsm_infinipath.so.1.*"))
	if err == nil && len(psm) == 1 {
		err = os.Symlink("libpsm1/"+filepath.Base(psm[0]), filepath.Join(c.Dir, "usr/lib/libpsm_infinipath.so.1"))
	}
	if err != nil {
		return err
	}
	if err := unpackSuite(filepath.Join(c.dirs["python3-pyverbs"], "usr/share/doc/rdma-core/tests"), filepath.Join(c.Dir, "tests")); err != nil {
		return err
	}
	if err := copyFile(libs.Server, filepath.Join(c.Dir, "uverbsd")); err != nil {
		return err
	}
	for _, name := range []string{"suite.py", "pair.py"} {
		if err := copyFile(filepath.Join("testdata/judges", name), filepath.Join(c.Dir, name)); err != nil {
			return err
		}
	}
	// Programs by which the suite finds netdevs and partitions: rdma asks NETLINK_RDMA, which this kernel lacks, and the package
	// of ls and cat (coreutils) is not in this root.
	for name, text := range map[string]string{
		"rdma": `print('[{"ifname":"mlx5_0","port":1,"netdev":"v0"}]')`,
		"ls":   "import os, sys\nprint('\\n'.join(sorted(os.listdir(sys.argv[1]))))",
		"cat":  "import sys\nprint(open(sys.argv[1]).read(), end='')",
	} {
		path := filepath.Join(c.Dir, "usr/bin", name)
		if err := os.RemoveAll(path); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte("#!/usr/bin/python3\n"+text+"\n"), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// unpackSuite copies the files of rdma-core's suite, which Debian compresses.
func unpackSuite(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err != nil {
			return err
		}
		name, compressed := strings.CutSuffix(e.Name(), ".gz")
		if compressed {
			z, err := gzip.NewReader(bytes.NewReader(data))
			if err != nil {
				return err
			}
			if data, err = io.ReadAll(z); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(to, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// run runs a program of the root, for at most half an hour: its own limits end it before.
func (c *court) run(ctx context.Context, env []string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Minute)
	defer cancel()
	path := args[0]
	for _, d := range []string{"/usr/bin", "/usr/sbin", "/"} {
		if _, err := os.Lstat(filepath.Join(c.Dir, d, args[0])); err == nil {
			path = filepath.Join(d, args[0])
			break
		}
	}
	cmd := exec.CommandContext(ctx, path)
	cmd.Path, cmd.Err, cmd.Args = path, nil, args
	cmd.Env, cmd.Dir = slices.Concat(c.env, env), "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: c.Dir, Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := c.ns.Do(cmd.Start) // in the namespace of the netdevs
	if err == nil {
		err = cmd.Wait()
	}
	return out.Bytes(), err
}

// overCourts runs test in a court of each suite.
func overCourts(t *testing.T, test func(t *testing.T, c *court)) {
	t.Helper()
	need.Root(t)
	var software soft.Libraries
	t.Cleanup(func() { software.Close() })
	libs := software.Get(t)
	for _, suite := range Suites() {
		t.Run(suite, func(t *testing.T) { test(t, newCourt(t, suite, libs)) })
	}
}

// TestJudgePyverbs runs the suite of rdma-core, as the distribution ships it, case by case.
func TestJudgePyverbs(t *testing.T) {
	overCourts(t, func(t *testing.T, c *court) {
		for _, d := range Devices() {
			c.judge(t, d.Name, c.pyverbs(t, d.Name))
		}
	})
}

// pyverbs runs the suite on a device. A case that fails or crashes ends its process, and another process goes on behind it.
func (c *court) pyverbs(t *testing.T, device string) verdicts {
	t.Helper()
	got := verdicts{}
	for {
		ran := got.ran()
		out, err := c.run(t.Context(), c.preload, "python3", "/suite.py", device, "/done-"+device)
		data, readErr := os.ReadFile(filepath.Join(c.Dir, "done-"+device))
		if readErr != nil {
			t.Fatalf("%s: %v, %v\n%s", device, err, readErr, tail(out))
		}
		got = verdicts{}
		for line := range strings.Lines(string(data)) {
			part := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 3)
			got[part[0]] = part[1]
			if part[1] == "error" || part[1] == "fail" {
				got[part[0]] += ": " + part[2]
			}
		}

		var exit *exec.ExitError
		switch {
		case err == nil:
			return got
		case !errors.As(err, &exit) || got.ran() == ran:
			t.Errorf("%s: a process of the suite ended before its next case: %v\n%s", device, err, tail(out))
			return got
		case exit.ExitCode() != afterFailure:
			t.Logf("%s: a process of the suite: %v\n%s", device, err, tail(out))
		}
	}
}

// afterFailure is the status of suite.py behind a case that fails.
const afterFailure = 3

func tail(out []byte) []byte { return out[max(0, len(out)-1500):] }

// pairs runs programs twice, as server and as client, below one uverbsd. A case is a command.
func (c *court) pairs(t *testing.T, got verdicts, env []string, commands ...string) {
	t.Helper()
	for _, command := range commands {
		args := strings.Fields(command)
		all := append([]string{"uverbsd", "/usr/bin/python3", "/pair.py"}, args...)
		all = append(append(append(all, "--"), args...), "127.0.0.1")
		out, err := c.run(t.Context(), env, all...)
		got[command] = "pass"
		if err != nil {
			got[command] = fmt.Sprintf("%v\n%s", err, tail(out))
		}
	}
}

// TestJudgeVerbsPrograms runs the programs of rdma-core and perftest between two processes.
func TestJudgeVerbsPrograms(t *testing.T) {
	overCourts(t, func(t *testing.T, c *court) {
		out, err := c.run(t.Context(), c.preload, "ibv_devinfo", "-v")
		if err != nil || !bytes.Contains(out, []byte("mlx5_0")) || !bytes.Contains(out, []byte("efa_0")) {
			t.Errorf("ibv_devinfo -v: %v\n%s", err, out)
		}
		mlx5, efa := verdicts{}, verdicts{}
		c.pairs(t, mlx5, nil, over("mlx5_0", "-g 0 -n 200",
			"ibv_rc_pingpong", "ibv_rc_pingpong -e", "ibv_rc_pingpong -c", "ibv_rc_pingpong -s 65536", "ibv_rc_pingpong -t",
			"ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong", "ibv_xsrq_pingpong")...)
		c.pairs(t, mlx5, nil, over("mlx5_0", "-x 0 -n 200 -F",
			"ib_send_bw -c RC", "ib_send_bw -c UC", "ib_send_bw -c UD", "ib_send_bw -e", "ib_send_bw -q 4 -b", "ib_write_bw -c RC",
			"ib_write_bw -c UC", "ib_read_bw", "ib_send_lat", "ib_write_lat", "ib_read_lat", "ib_atomic_bw")...)
		c.pairs(t, efa, nil, over("efa_0", "-g 0 -n 200", "ibv_ud_pingpong")...)
		c.pairs(t, efa, nil, over("efa_0", "-x 0 -n 200 -F",
			"ib_send_bw -c SRD", "ib_send_lat -c SRD", "ib_write_bw -c SRD", "ib_read_bw -c SRD", "ib_send_bw -c UD -Q 1")...)
		c.judge(t, "mlx5_0", mlx5)
		c.judge(t, "efa_0", efa)
	})
}

// over completes commands by the device and further flags.
func over(device, flags string, commands ...string) []string {
	var all []string
	for _, c := range commands {
		name, rest, _ := strings.Cut(c, " ")
		all = append(all, strings.Join(strings.Fields(name+" -d "+device+" "+flags+" "+rest), " "))
	}
	return all
}

// TestJudgeLibfabric runs libfabric over the EFA, without its shared memory: fi_pingpong of the package, and four programs of
// its test suite, which are compiled from the sources of the package.
func TestJudgeLibfabric(t *testing.T) {
	overCourts(t, func(t *testing.T, c *court) {
		// libfabric's provider gives up at the first device that is no EFA.
		if err := os.Remove(filepath.Join(c.Dir, "sys/class/infiniband_verbs/uverbs0")); err != nil {
			t.Fatal(err)
		}
		ready := []string{"fi_pingpong -p efa -e rdm -I 100", "fi_pingpong -p efa -e dgram -I 100"}
		suite := []string{
			"fi_rdm_pingpong -p efa -I 50 -E", "fi_rma_bw -p efa -e rdm -o write -I 50 -E", "fi_rma_bw -p efa -e rdm -o read -I 50 -E",
			"fi_rdm_pingpong -p efa -t counter -c spin -I 50 -E", "fi_rma_bw -p efa -f efa -e rdm -o write -t counter -c spin -I 50 -E",
			"fi_rdm_cntr_pingpong -p efa -c spin -I 50 -E",
		}
		got := verdicts{}
		if err := c.fabtests(t); err != nil {
			for _, command := range suite {
				got[command] = err.Error()
			}
		} else {
			ready = append(ready, suite...)
		}
		c.pairs(t, got, []string{"FI_EFA_ENABLE_SHM_TRANSFER=0"}, ready...)
		c.judge(t, "efa_0", got)
	})
}

// fabtests compiles the programs of libfabric's suite over the root's library. Debian packages none of them. The archive may lack
// the sources.
func (c *court) fabtests(t *testing.T) error {
	t.Helper()
	need.Tool(t, "gcc")
	dir, err := archive.DefaultDir()
	if err != nil {
		t.Fatal(err)
	}
	src, err := archive.Cache{Dir: dir}.Source(t.Context(), c.Suite, "libfabric")
	if err != nil {
		return err
	}
	tests, _ := filepath.Glob(filepath.Join(src, "*", "fabtests"))
	library, _ := filepath.Glob(filepath.Join(c.Dir, "usr/lib/*/libfabric.so.1"))
	if len(tests) != 1 || len(library) != 1 {
		return fmt.Errorf("compiling fabtests: found the sources %q and the library %q, want one of each", tests, library)
	}
	common, err := filepath.Glob(filepath.Join(tests[0], "common", "*.c"))
	if err != nil {
		t.Fatal(err)
	}
	common = slices.DeleteFunc(common, func(name string) bool { return filepath.Base(name) == "check_hmem.c" })
	config := t.TempDir()
	text := "#define PACKAGE_VERSION \"0\"\n#define HAVE_EPOLL 1\n#define HAVE_CLOCK_GETTIME 1\n#define HAVE___INT128 1\n"
	if err := os.WriteFile(filepath.Join(config, "config.h"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"rdm_pingpong", "rma_bw", "rdm_cntr_pingpong"} {
		args := []string{"-w", "-D_GNU_SOURCE", "-I" + config, "-I" + tests[0] + "/include", "-I" + filepath.Dir(tests[0]) + "/include",
			"-o", filepath.Join(c.Dir, "usr/bin/fi_"+name), tests[0] + "/benchmarks/" + name + ".c", tests[0] + "/benchmarks/benchmark_shared.c"}
		args = append(append(args, common...), library[0], "-Wl,--allow-shlib-undefined", "-lpthread", "-ldl", "-lm")
		if out, err := exec.CommandContext(t.Context(), "gcc", args...).CombinedOutput(); err != nil {
			t.Fatalf("compiling %s: %v\n%s", name, err, out)
		}
	}
	return nil
}
