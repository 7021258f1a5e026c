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
	e := ibvtest.Env{Devices: []ibvtest.Device{{Name: "mlx5_0", Netdev: "v0"}, {Name: "mlx5_1", Netdev: "v1"}}}
	switch name {
	case "faults":
		e.Fail = []ibvtest.Fault{
			{Verb: "ALLOC_PD", Errno: "ENOMEM", From: 2, To: 3},
			{Device: "mlx5_1", Verb: "QUERY_DEVICE", Errno: "EIO"},
		}
		e.Delay = []ibvtest.Delay{{Verb: "QUERY_DEVICE", Time: 20 * time.Millisecond}}
	case "without":
		e.Without = []string{"counters", "dont_trap", "egress", "comp_cntr", "mlx5_1/flows", "mlx5_1/raw"}
	case "wqe_delay":
		e.Delay = []ibvtest.Delay{{Device: "mlx5_0", Verb: "WQE", Time: time.Hour}, {Device: "mlx5_1", Verb: "WQE", Time: 20 * time.Millisecond}}
	case "busy":
		e.Delay = []ibvtest.Delay{{Device: "mlx5_1", Verb: "WQE", Time: 10 * time.Microsecond}}
	case "comp_cntr_limits":
		e.CompCntrMax = []string{"9", "mlx5_1/5"}
		e.CompCntrOps = []string{"send", "recv", "mlx5_1/rdma_write", "mlx5_1/0x80000000"}
	case "comp_cntr_external":
		e.Without = []string{"mlx5_1/efadv"}
	}
	return e
}

// The self-test is compiled and linked with the distribution's own headers and libraries, below which the kernel is
// preloaded. The kernel is also tested under the address sanitizer.
func TestVerbsSelfTestPasses(t *testing.T) {
	need.Netns(t)
	need.Cap(t, "net_raw")
	need.RDMACore(t)
	need.Header(t, "infiniband/verbs.h")
	sources, err := filepath.Glob("testdata/verbs/*.c")
	if err != nil || len(sources) == 0 {
		t.Fatal(sources, err)
	}
	program := compile(t, "verbs-selftest", append(sources, "-libverbs", "-ldl"), "-D_GNU_SOURCE", "-O1")
	out, err := exec.Command(program).Output()
	if err != nil {
		t.Fatal(err)
	}
	cases := strings.Fields(string(out))
	if len(cases) < 15 {
		t.Fatalf("only the cases %q", cases)
	}
	for _, run := range []struct {
		name    string
		libs    ibvtest.Libs
		preload string // before the kernel
	}{
		{"plain", libraries(t, "strict", "-Werror"), ""},
		{"sanitized", libraries(t, "sanitized", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"), runtimeOf(t, "libasan.so") + ":"},
	} {
		t.Run(run.name, func(t *testing.T) {
			for _, name := range cases {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					verbsCase(t, program, run.libs, run.preload+run.libs.Kernel, name)
				})
			}
		})
	}
}

// runtimeOf returns the path of a library of the compiler.
func runtimeOf(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("gcc", "-print-file-name="+name).Output()
	path := strings.TrimSpace(string(out))
	if err != nil || !filepath.IsAbs(path) {
		t.Fatalf("the compiler has no %s: %q, %v", name, path, err)
	}
	return path
}

func verbsCase(t *testing.T, program string, libs ibvtest.Libs, preload, name string) {
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
	cmd.Env = slices.Concat(os.Environ(), e.Environ(), []string{
		"LD_PRELOAD=" + preload, "ASAN_OPTIONS=detect_leaks=0", "FLOWTALLY_IBVTEST_SYSFS=" + t.TempDir(), "SELFTEST_SHIM=" + libs.Shim, "TMPDIR=" + dir})
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
	if calls["DEVICE_LIST"] == 0 {
		t.Errorf("the list of devices is not counted: %v", calls)
	}
	if drops := calls["NIC_DROPS"]; drops > 0 {
		t.Errorf("NIC_DROPS is %d", drops)
	}
	if name == "order" && (calls["EX_CREATE_FLOW"] != 1 || calls["COUNTERS_DESTROY"] != 2) {
		t.Errorf("calls are %v, want one flow and two attempts at the counters' end", calls)
	}
}
