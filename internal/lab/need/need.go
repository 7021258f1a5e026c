package need

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// Env names the variable that turns skips into failures.
const Env = "FLOWTALLY_REQUIRE"

// Required says whether FLOWTALLY_REQUIRE asks for the need of that name.
func Required(name string) bool {
	asked := strings.FieldsFunc(os.Getenv(Env), func(r rune) bool { return r == ',' || r == ' ' })
	return slices.Contains(asked, "all") || slices.Contains(asked, name)
}

// Missing ends the test because the need called name is not met: it skips, or
// fails where the need is required. For needs that only the caller can check.
func Missing(t testing.TB, name, reason string) {
	t.Helper()
	if Required(name) {
		t.Fatalf("%s is required (%s=%s) and missing: %s", name, Env, os.Getenv(Env), reason)
	}
	t.Skipf("needs %s: %s", name, reason)
}

// check ends the test when err is not nil.
func check(t testing.TB, name string, err error) {
	t.Helper()
	if err != nil {
		Missing(t, name, err.Error())
	}
}

// Cap needs every capability of names in the effective set of this process,
// spelt as in capabilities(7) without the prefix: "net_admin", "bpf". Each is
// the need "cap:NAME".
func Cap(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		check(t, "cap:"+name, haveCap(name))
	}
}

// Root needs the effective user to be root. It is the need "root".
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Missing(t, "root", "the effective user is not root")
	}
}

// Tool needs every program of names on PATH. Each is the need "tool:NAME".
func Tool(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		_, err := exec.LookPath(name)
		check(t, "tool:"+name, err)
	}
}

// Command needs a command to succeed. It is the need name.
func Command(t testing.TB, name string, command ...string) {
	t.Helper()
	if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
		Missing(t, name, fmt.Sprintf("%q: %v: %s", command, err, out))
	}
}

// Header needs every C header of names, as #include <NAME> would find it in the
// system's directory. Each is the need "header:NAME".
func Header(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		_, err := os.Stat(filepath.Join("/usr/include", name))
		check(t, "header:"+name, err)
	}
}

// CPUs needs that many CPUs. It is the need "cpus".
func CPUs(t testing.TB, n int) {
	t.Helper()
	if have := runtime.NumCPU(); have < n {
		Missing(t, "cpus", fmt.Sprintf("%d CPUs, this machine has %d", n, have))
	}
}

// BPF needs XDP and tc programs to load. It is the need "bpf".
func BPF(t testing.TB) {
	t.Helper()
	check(t, "bpf", haveBPF())
}

// BPFFS needs a bpffs at /sys/fs/bpf, and returns that path. A package whose tests
// ask for it calls lab.Isolate in TestMain, which gives them a bpffs of their own.
// It is the need "bpffs".
func BPFFS(t testing.TB) string {
	t.Helper()
	path, err := bpffs()
	check(t, "bpffs", err)
	return path
}

// Netns needs network namespaces with veth pairs. It is the need "netns".
func Netns(t testing.TB) {
	t.Helper()
	check(t, "netns", haveNetns())
}

// TCX needs tc programs to attach by TCX links (Linux 6.6). It is the need "tcx".
func TCX(t testing.TB) {
	t.Helper()
	check(t, "tcx", haveTCX())
}

// RDMACore needs the libraries of rdma-core, as the loader finds them: libibverbs with the providers of mlx5 and EFA. It
// is the need "rdma-core".
func RDMACore(t testing.TB) {
	t.Helper()
	check(t, "rdma-core", haveRDMACore())
}

// IPsec needs a kernel that lists IPsec policies (xfrm_user). It is the need "ipsec".
func IPsec(t testing.TB) {
	t.Helper()
	check(t, "ipsec", haveIPsec())
}
