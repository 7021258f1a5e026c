package ibvtest_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/seed"
)

// libraries builds them once per run and set of flags.
var built struct {
	sync.Mutex
	libs map[string]ibvtest.Libs
}

func libraries(t testing.TB, name string, flags ...string) ibvtest.Libs {
	t.Helper()
	need.Tool(t, "gcc")
	built.Lock()
	defer built.Unlock()
	if libs, ok := built.libs[name]; ok {
		return libs
	}
	libs, err := ibvtest.Build(filepath.Join(workDir, "libs-"+name), flags...)
	if err != nil {
		t.Fatal(err)
	}
	if built.libs == nil {
		built.libs = make(map[string]ibvtest.Libs)
	}
	built.libs[name] = libs
	return libs
}

// verbsEnv is the environment of the library for the case.
func verbsEnv(name string) ibvtest.Env {
	e := ibvtest.Env{Devices: []ibvtest.Device{{Name: "swnic0", Netdev: "v0"}, {Name: "swnic9", Netdev: "v9"}, {Name: "swnic1", Netdev: "v1"}}}
	switch name {
	case "faults":
		e.Fail = []ibvtest.Fault{
			{Verb: "ibv_alloc_pd", Errno: "ENOMEM", From: 2, To: 3},
			{Device: "swnic1", Verb: "ibv_query_device", Errno: "EIO"},
		}
		e.Delay = []ibvtest.Delay{{Verb: "ibv_query_device", Time: 20 * time.Millisecond}}
	case "without":
		e.Without = []string{"counters", "dont_trap", "egress", "comp_cntr", "swnic1/flows", "swnic1/raw"}
	case "wqe_delay":
		e.Delay = []ibvtest.Delay{{Device: "swnic0", Verb: "WQE", Time: time.Hour}, {Device: "swnic1", Verb: "WQE", Time: 20 * time.Millisecond}}
	case "busy":
		e.Delay = []ibvtest.Delay{{Device: "swnic1", Verb: "WQE", Time: 10 * time.Microsecond}}
	case "comp_cntr_limits":
		e.CompCntrMax = []string{"9", "swnic1/5"}
		e.CompCntrOps = []string{"send", "recv", "swnic1/rdma_write", "swnic1/0x80000000"}
	case "comp_cntr_external":
		e.Without = []string{"swnic1/efadv"}
	case "ring_absent":
		e.Without = []string{"swnic0/devx", "swnic1/cq_ring"}
	}
	return e
}

// The self-test is compiled and linked with the distribution's own headers and library. It runs
// over each build, and over one under the address sanitizer.
func TestVerbsSelfTestPasses(t *testing.T) {
	need.Netns(t)
	need.Cap(t, "net_raw")
	need.Header(t, "infiniband/verbs.h")
	sources, err := filepath.Glob("testdata/verbs/*.c")
	if err != nil || len(sources) == 0 {
		t.Fatal(sources, err)
	}
	sources = append(sources, "-libverbs")
	program := compile(t, "verbs-selftest", sources, "-D_GNU_SOURCE", "-O1")
	plain := libraries(t, "strict", "-Werror")
	sanitize := []string{"-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"}
	sanitized := sanitizedVerbs(t, sanitize)
	for _, run := range []struct{ name, program, library, providers string }{
		{"65", program, plain.Verbs, filepath.Dir(plain.MLX5)},
		{"44", program, plain.Verbs44, filepath.Dir(plain.MLX5)},
		{"sanitized", compile(t, "verbs-selftest-sanitized", sources, append(sanitize, "-D_GNU_SOURCE")...), sanitized, filepath.Dir(sanitized)},
	} {
		t.Run(run.name, func(t *testing.T) {
			out, err := exec.Command(run.program).Output()
			if err != nil {
				t.Fatal(err)
			}
			cases := strings.Fields(string(out))
			if len(cases) < 15 {
				t.Fatalf("only the cases %q", cases)
			}
			for _, name := range cases {
				if counters := strings.HasPrefix(name, "comp_cntr") && name != "comp_cntr_absent"; run.name == "44" && counters ||
					run.name != "44" && name == "comp_cntr_absent" {
					continue
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					verbsCase(t, run.program, run.library, run.providers, name)
				})
			}
		})
	}
}

// sanitizedVerbs is the newer build of libibverbs with those flags; its providers lie beside it.
func sanitizedVerbs(t *testing.T, flags []string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(workDir, "sanitized"), 0o755); err != nil {
		t.Fatal(err)
	}
	library := func(name, version string, patterns ...string) string {
		script := filepath.Join(workDir, "sanitized", version)
		if out, err := exec.Command("gcc", "-DIBVTEST_RDMA_CORE=65", "-E", "-P", "-x", "c", "-o", script, "src/"+version).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		var sources []string
		for _, pattern := range patterns {
			some, err := filepath.Glob(filepath.Join("src", pattern))
			if err != nil || len(some) == 0 {
				t.Fatal(pattern, some, err)
			}
			sources = append(sources, some...)
		}
		return compile(t, filepath.Join("sanitized", name), sources, slices.Concat(flags, []string{"-shared", "-fPIC", "-fvisibility=hidden",
			"-Wl,-soname," + name, "-Wl,--version-script=" + script})...)
	}
	library("libmlx5.so.1", "mlx5.map", "mlx5_[cd]*.c", "mlx5_flow.c", "provider.c")
	library("libefa.so.1", "efa.map", "efa.c", "provider.c")
	return library("libibverbs.so.1", "verbs.map", "verbs_*.c", "rdma_*.c", "nic*.c", "mlx5_[mp]*.c", "mlx5_firmware.c",
		"uverbs/efa_ib_comp_cntr.c", "uverbs/mlx5_ib_counters.c", "uverbs/mlx5_ib_devx.c", "uverbs/mlx5_ib_fs.c", "uverbs/mlx5_ib_spec.c",
		"uverbs/uverbs_[aefimo]*.c", "uverbs/uverbs_cmd.c", "uverbs/uverbs_std*.c")
}

func verbsCase(t *testing.T, program, library, providers, name string) {
	ns, err := lab.NewNetns("")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	pair, err := lab.NewPair(ns, ns, "v0", "v1", lab.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	control, err := ibvtest.NewControl(filepath.Join(dir, "control"))
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	e := verbsEnv(name)
	e.Control = control.Path()
	e.Statistics = filepath.Join(dir, "calls")
	cmd := exec.Command(program, name)
	cmd.Env = slices.Concat(os.Environ(), e.Environ(), []string{"LD_LIBRARY_PATH=" + filepath.Dir(library), "SELFTEST_PROVIDERS=" + providers, "TMPDIR=" + dir})
	if strings.HasSuffix(name, "_random") {
		cmd.Env = append(cmd.Env, fmt.Sprint("SELFTEST_SEED=", seed.Uint64(t)))
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	// Longer than the waits of a case, which name the missing completion.
	timer := time.AfterFunc(2*time.Minute, func() { cmd.Process.Kill() })
	defer timer.Stop()
	var out strings.Builder
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		switch lines.Text() {
		case "delete":
			err = pair.Close()
		case "make":
			pair, err = lab.NewPair(ns, ns, "v0", "v1", lab.PairOptions{})
		default:
			fmt.Fprintln(&out, lines.Text())
			continue
		}
		if err != nil {
			t.Error(err)
		}
		io.WriteString(stdin, "\n")
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s%s", err, out.String(), stderr.String())
	}
	calls, err := ibvtest.ReadStatistics(e.Statistics)
	if err != nil {
		t.Fatal(err)
	}
	if calls["ibv_get_device_list"] == 0 {
		t.Errorf("calls of ibv_get_device_list are not counted: %v", calls)
	}
	if drops, ok := calls["NIC_DROPS"]; drops > 0 || ok != (calls["ibv_close_device"] > 0) {
		t.Errorf("NIC_DROPS is %d, there: %t; want 0", drops, ok)
	}
	if name == "order" && (calls["ibv_create_flow"] != 1 || calls["ibv_destroy_counters"] != 2 || calls["ibv_attach_counters_point_flow"] != 2) {
		t.Errorf("calls are %v, want one flow, two attaches and two attempts at the counters' end", calls)
	}
	left, err := filepath.Glob(filepath.Join(dir, "flowtally-ibvtest.*"))
	if err != nil || len(left) > 0 {
		t.Errorf("the library left %q behind (%v)", left, err)
	}
}
