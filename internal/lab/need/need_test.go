package need

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab"
)

func TestMain(m *testing.M) {
	_ = lab.Isolate(lab.ForTests) // without the privilege, each gate names the privilege that it needs
	os.Exit(m.Run())
}

// recorder stands in for the test that a gate ends.
type recorder struct {
	testing.TB
	verdict string
}

func (r *recorder) Helper() {}
func (r *recorder) Fatalf(format string, args ...any) {
	r.verdict = "fail: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}
func (r *recorder) Skipf(format string, args ...any) {
	r.verdict = "skip: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// verdict of gate: "" when it let the test go on.
func verdict(gate func(testing.TB)) string {
	r := &recorder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		gate(r)
	}()
	<-done
	return r.verdict
}

func TestMissingToolFailsOnlyIfRequired(t *testing.T) {
	const tool = "flowtally-no-such-tool"
	gate := func(t testing.TB) { Tool(t, tool) }
	for _, tc := range []struct {
		name, require string
		want          string
	}{
		{"nothing required", "", "skip"},
		{"another required", "bpf, netns", "skip"},
		{"name is no prefix", "tool:flowtally", "skip"},
		{"all required", "all", "fail"},
		{"this required", "tool:" + tool, "fail"},
		{"this among others", "bpf tool:" + tool + ",tcx", "fail"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv(Env, tc.require)
			if got := verdict(gate); len(got) < 4 || got[:4] != tc.want {
				t.Errorf("got %q, want %s", got, tc.want)
			}
		})
	}
}

func TestMetNeedPasses(t *testing.T) {
	t.Setenv(Env, "all")
	if got := verdict(func(t testing.TB) { Tool(t, "go") }); got != "" {
		t.Errorf("go is on PATH: got %q", got)
	}
}

func TestMissingHeaderFailsIfRequired(t *testing.T) {
	t.Setenv(Env, "header:flowtally/no-such-header.h")
	got := verdict(func(t testing.TB) { Header(t, "flowtally/no-such-header.h") })
	if !strings.HasPrefix(got, "fail: header:flowtally/no-such-header.h is required") {
		t.Errorf("a header that is not there: %q", got)
	}
}

func TestUnknownCapabilityIsNotMet(t *testing.T) {
	t.Setenv(Env, "all")
	if got := verdict(func(t testing.TB) { Cap(t, "net_admim") }); got == "" {
		t.Error("a capability that does not exist was met")
	}
}

// The needs of this machine: each gate either passes or ends this subtest as
// it would any other.
func TestEachGatePassesOrEndsItsTest(t *testing.T) {
	for name, gate := range map[string]func(testing.TB){
		"root": Root, "bpf": BPF, "netns": Netns, "tcx": TCX, "ipsec": IPsec,
		"bpffs": func(t testing.TB) { BPFFS(t) },
		"cap":   func(t testing.TB) { Cap(t, "net_admin", "bpf", "perfmon", "sys_admin") },
	} {
		t.Run(name, func(t *testing.T) { gate(t) })
	}
}
