package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/plugin"
)

// needLandlock skips the test on a kernel that cannot confine the plugin, or whose older Landlock cannot confine
// signals.
func needLandlock(t *testing.T) {
	t.Helper()
	if abi, err := ll.LandlockGetABIVersion(); err != nil || abi < 6 {
		need.Missing(t, "landlock", fmt.Sprintf("version %d, %v", abi, err))
	}
}

// attempt is one line of the hostile library's report.
type attempt struct {
	pid   int
	errno syscall.Errno
}

// attacked launches a plugin with a hostile RDMA library, and returns what the library attempted, by name.
func attacked(t *testing.T, env ...string) (attempts map[string][]attempt, pid int) {
	t.Helper()
	uverbs.Need(t)
	dir := t.TempDir()
	library := filepath.Join(dir, "attack.so")
	cc := exec.Command("gcc", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, "testdata/attack.c",
		"-Wl,--no-as-needed", "-l:libibverbs.so.1")
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cc.Args, err, out)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	name := lab.Unique("attack")
	socket, err := net.Listen("unix", "@"+name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	mirrors := filepath.Join(t.TempDir(), "mirrors") // the plugin makes it
	report := filepath.Join(mirrors, "report")
	devices := ibvtest.Env{Devices: []ibvtest.Device{{Name: "mlx5_0", Netdev: "lo"}}}.Environ()
	devices = slices.DeleteFunc(devices, func(kv string) bool { return strings.HasPrefix(kv, "FLOWTALLY_PLUGIN_PATHS=") })
	c, err := plugin.Launch(t.Context(), plugin.Options{
		Path: self,
		Env: slices.Concat(devices, []string{
			roleEnv + "=plugin", "ATTACK_REPORT=" + report, "ATTACK_SOCKET=" + name, "ATTACK_HOST=" + strconv.Itoa(os.Getpid()),
		}, env),
		Config: dataplane.Config{
			Instance: name, Interfaces: []dataplane.Interface{{Name: "lo"}},
			Mirror: dataplane.MirrorConfig{Path: filepath.Join(mirrors, "a.mirror")},
			XDP:    dataplane.XDPConfig{PinDir: filepath.Join(need.BPFFS(t), name)},
			RDMA:   dataplane.RDMAConfig{Library: library},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	info, err := c.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(report)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	attempts = make(map[string][]attempt)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var a attempt
		var name string
		if _, err := fmt.Sscan(lines.Text(), &a.pid, &name, &a.errno); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		attempts[name] = append(attempts[name], a)
	}
	return attempts, info.PID
}

// The hostile library attacks from within the plugin, and from within the process that tries libraries out.
func TestTakenOverPluginReachesNothingElse(t *testing.T) {
	need.Root(t)
	needLandlock(t)
	attempts, pid := attacked(t)
	refused := map[string][]syscall.Errno{
		"write-shadow": {unix.EACCES}, "read-shadow": {unix.EACCES}, "write-library": {unix.EACCES}, "make-file": {unix.EACCES},
		"make-directory": {unix.EACCES}, "move-out": {unix.EACCES, unix.EXDEV}, "link-out": {unix.EACCES, unix.EXDEV}, "write-by-shell": {unix.EACCES},
		"memory-of-init": {unix.EACCES, unix.EPERM}, "memory-of-host": {unix.EACCES, unix.EPERM}, "read-host": {unix.EPERM}, "trace-host": {unix.EPERM}, "signal-host": {unix.EPERM},
		"connect-tcp": {unix.EACCES}, "connect-abstract": {unix.EPERM},
		"own-file": {0}, "library": {0}, "groups": {0},
	}
	for name, want := range refused {
		inPlugin, inTrial := false, false
		for _, a := range attempts[name] {
			inPlugin, inTrial = inPlugin || a.pid == pid, inTrial || a.pid != pid
			if !slices.Contains(want, a.errno) {
				t.Errorf("%s in process %d: %v, want %v", name, a.pid, error(a.errno), want)
			}
		}
		if !inPlugin || !inTrial {
			t.Errorf("%s was tried in the plugin %v, in a trial %v", name, inPlugin, inTrial)
		}
	}
	if len(attempts) != len(refused) {
		t.Errorf("%d attempts, want %d", len(attempts), len(refused))
	}
}

// If these attempts succeed here, nothing but the confinement makes them fail in the test above.
func TestPluginPathsPermitWhatConfinementRefuses(t *testing.T) {
	need.Root(t)
	needLandlock(t)
	attempts, _ := attacked(t, "FLOWTALLY_PLUGIN_PATHS=/etc/shadow")
	for _, name := range []string{"write-shadow", "read-shadow"} {
		for _, a := range attempts[name] {
			if a.errno != 0 {
				t.Errorf("%s: %v", name, error(a.errno))
			}
		}
	}
}

// errnoEnv makes landlock_create_ruleset fail in a plugin with an error of this number, like an old kernel or the
// filter of a container.
const errnoEnv = "FLOWTALLY_TEST_NO_LANDLOCK"

func init() {
	errno, err := strconv.Atoi(os.Getenv(errnoEnv))
	if err != nil {
		return
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_LANDLOCK_CREATE_RULESET, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, failed := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if failed != 0 {
		panic(failed)
	}
}

// If the kernel cannot confine the plugin, it still counts, and a condition says why it is not confined.
func TestUnconfinedPluginSaysSo(t *testing.T) {
	need.Root(t) // to filter system calls without no_new_privs
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for errno, why := range map[syscall.Errno]string{
		unix.ENOSYS: "the kernel was built without Landlock", unix.EOPNOTSUPP: "Landlock is off in the kernel", unix.EPERM: "operation not permitted",
	} {
		name := lab.Unique("open")
		c, err := plugin.Launch(t.Context(), plugin.Options{
			Path: self, Env: []string{roleEnv + "=plugin", fmt.Sprintf("%s=%d", errnoEnv, errno)},
			Config: dataplane.Config{Instance: name, Backend: "sim", Mirror: dataplane.MirrorConfig{Path: filepath.Join(t.TempDir(), name+".mirror")}},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		lab.Eventually(t, "the condition", func() bool {
			conditions, err := c.Conditions(t.Context())
			return err == nil && slices.ContainsFunc(conditions, func(c dataplane.Condition) bool {
				if c.Code == dataplane.CodePluginUnconfined {
					lab.Step(t, c.Fix, "allow landlock_* in the system calls") // TestTakenOverPluginReachesNothingElse has no filter
				}
				return c.Code == dataplane.CodePluginUnconfined && c.Severity == dataplane.Low && strings.Contains(c.Text, why)
			})
		})
	}
}
