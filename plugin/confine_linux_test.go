package plugin_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// status is the fields of a thread's /proc/…/status.
func status(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	fields := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.TrimSpace(value)
	}
	return fields
}

// No thread of a plugin keeps privileges that counting does not need, or can gain any by executing a
// program. The privileges of the host process do not change.
func TestNoThreadKeepsPrivilegesThatCountingDoesNotNeed(t *testing.T) {
	need.Root(t)
	const bpf, netAdmin, perfmon, netRaw = 1 << unix.CAP_BPF, 1 << unix.CAP_NET_ADMIN, 1 << unix.CAP_PERFMON, 1 << unix.CAP_NET_RAW
	before := status(t, "/proc/self/status")
	// The limit on locked memory of a plugin: none, if this process may raise the limit.
	var lock unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &lock); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 65536, Max: lock.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &lock); err != nil {
			t.Error(err)
		}
	})
	most := lock.Max
	if v, err := strconv.ParseUint(before["CapEff"], 16, 64); err == nil && v&(1<<unix.CAP_SYS_RESOURCE) != 0 {
		most = unix.RLIM_INFINITY
	}
	for _, test := range []struct {
		name string
		cfg  dataplane.Config
		rdma bool
	}{
		{"auto", dataplane.Config{}, true},
		{"rdma", dataplane.Config{Backend: "rdma"}, true},
		{"xdp", dataplane.Config{Backend: "xdp"}, false},
		{"sim", dataplane.Config{Backend: "sim"}, false},
		{"xdp and queue pairs", dataplane.Config{Backend: "xdp", QueuePairs: []dataplane.QueuePair{{Name: "q", Device: "rxe0"}}}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			opts := options(t, "fake")
			opts.Config = test.cfg
			c := launch(t, opts)
			check := func() {
				t.Helper()
				keep := uint64(bpf | netAdmin | perfmon)
				if test.rdma {
					keep |= netRaw
				}
				threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid(t, c)))
				if err != nil || len(threads) < 2 {
					t.Fatalf("threads %v, %v", threads, err)
				}
				for _, path := range threads {
					got := status(t, path)
					for field, want := range map[string]uint64{"CapPrm": keep, "CapEff": keep, "CapBnd": keep, "CapInh": 0, "CapAmb": 0} {
						if v, err := strconv.ParseUint(got[field], 16, 64); v != want || err != nil {
							t.Errorf("%s: %s is %s, want %#x", path, field, got[field], want)
						}
					}
					if got["NoNewPrivs"] != "1" {
						t.Errorf("%s: no_new_privs is %s", path, got["NoNewPrivs"])
					}
				}
				want := unix.Rlimit{Cur: 65536, Max: lock.Max}
				if test.rdma {
					want = unix.Rlimit{Cur: most, Max: most}
				}
				var got unix.Rlimit
				if err := unix.Prlimit(pid(t, c), unix.RLIMIT_MEMLOCK, nil, &got); err != nil || got != want {
					t.Errorf("it may lock %+v, %v, want %+v", got, err, want)
				}
			}
			check()
			kill(t, c, unix.SIGKILL)
			restarted(t, c, 1)
			check()
		})
	}
	for _, task := range []string{"/proc/self/status", "/proc/thread-self/status"} {
		after := status(t, task)
		for _, field := range []string{"CapPrm", "CapEff", "CapBnd", "CapInh", "CapAmb", "NoNewPrivs", "Groups"} {
			if after[field] != before[field] {
				t.Errorf("%s: %s is %s, was %s", task, field, after[field], before[field])
			}
		}
	}
}

// The plugin may give its files to the groups of their readers, for which it must be a member without CAP_CHOWN. Other
// groups stay.
func TestPluginIsMemberOfTheReadersGroupsAndKeepsItsOwn(t *testing.T) {
	need.Root(t)
	for setting, set := range map[string]func(*dataplane.MirrorConfig, string){
		"wait_group":  func(m *dataplane.MirrorConfig, name string) { m.WaitGroup = name },
		"live_group":  func(m *dataplane.MirrorConfig, name string) { m.LiveGroup = name },
		"words_group": func(m *dataplane.MirrorConfig, name string) { m.WordsGroup = name },
	} {
		for name, want := range map[string]string{"4321": "4321", "daemon": "1", "": "", "no such group": ""} {
			opts := options(t, "fake")
			set(&opts.Config.Mirror, name)
			groups := strings.Fields(status(t, fmt.Sprintf("/proc/%d/status", pid(t, launch(t, opts))))["Groups"])
			own := strings.Fields(status(t, "/proc/self/status")["Groups"])
			if want != "" && !slices.Contains(own, want) {
				own = append(own, want)
			}
			slices.Sort(own)
			slices.Sort(groups)
			if !slices.Equal(groups, own) {
				t.Errorf("%s %q: the groups are %v, want %v", setting, name, groups, own)
			}
		}
	}
}
