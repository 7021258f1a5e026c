//go:build releases

package rdmacore

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/ibv/ibvtest"
)

// TestMutantKernelsChangeNoAnswerOrAreNamed probes both devices over uverbs kernels that misbehave, over the newest
// release. The program ends, and the checks of the device either are the checks over the right kernel, or name the verb
// and the cause.
func TestMutantKernelsChangeNoAnswerOrAreNamed(t *testing.T) {
	flowtally := program(t)
	libs, err := ibvtest.Build(filepath.Join(filepath.Dir(flowtally), "ibvtest"))
	if err != nil {
		t.Fatal(err)
	}
	root := release(t, "sid").NewRoot(t)
	ns := netdevs(t)
	preload := root.Preload(t, libs.Kernel, "v0", "v1")
	// doctor returns the checks of rdma as lines: the device, the feature, yes or no, the reason.
	doctor := func(t *testing.T, e ibvtest.Env) []string {
		e.Devices = []ibvtest.Device{{Name: "mlx5_0", Netdev: "v0"}, {Name: "efa_0", Netdev: "v1"}}
		var out []byte
		err := ns.Do(func() (err error) {
			out, err = root.Run(t.Context(), flowtally, append(preload, e.Environ()...), "doctor", "-o", "json")
			return err
		})
		if err != nil {
			t.Fatalf("doctor: %v\n%s", err, out)
		}
		var report struct {
			Checks []struct{ Backend, Object, Feature, Answer, Reason string }
		}
		if err := json.Unmarshal(out, &report); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		var lines []string
		for _, a := range report.Checks {
			if a.Backend == "rdma" {
				lines = append(lines, strings.Join([]string{a.Object, a.Feature, a.Answer, a.Reason}, ": "))
			}
		}
		return lines
	}
	right := doctor(t, ibvtest.Env{})
	if !strings.Contains(strings.Join(right, "\n"), "flow counters: yes") {
		t.Fatalf("over the right kernel:\n%s", strings.Join(right, "\n"))
	}
	fail := func(verb, errno string) ibvtest.Env {
		return ibvtest.Env{Fail: []ibvtest.Fault{{Device: "mlx5_0", Verb: verb, Errno: errno}}}
	}
	const unchanged = ""
	for _, m := range []struct {
		name string
		e    ibvtest.Env
		want string // in one check of mlx5_0
	}{
		{"handles that no object has", ibvtest.Env{Mutant: "wrong_handle"}, "inconclusive: mlx5_0: duplicating its event descriptor: bad file descriptor"},
		{"an errno that no man page names", fail("COUNTERS_CREATE", "EREMOTEIO"), "ibv_create_counters: remote I/O error"},
		{"responses cut in half", ibvtest.Env{Mutant: "truncated_response"}, "no: a process that tried it out"},
		{"a command that never returns", ibvtest.Env{Delay: []ibvtest.Delay{{Device: "mlx5_0", Verb: "CQ_CREATE", Time: time.Hour}}}, "had not returned after 5s in ibv_create_cq"},
		{"a command that ends the process", fail("CQ_CREATE", "ABORT"), "in ibv_create_cq"},
		{"a command that exits with success", fail("CQ_CREATE", "EXIT"), "in ibv_create_cq"},
		{"a command of the probe alone that never returns", ibvtest.Env{Delay: []ibvtest.Delay{{Device: "mlx5_0", Verb: "COUNTERS_CREATE", Time: time.Hour}}}, "inconclusive: a process that tried it out had not returned after 5s in ibv_create_counters"},
		{"a flow that ends the process", fail("EX_CREATE_FLOW", "ABORT"), "inconclusive: a process that tried it out ended (exit status 2) in ibv_create_flow"},
		{"a queue pair that ends the process", fail("QP_CREATE", "ABORT"), "inconclusive: a process that tried it out ended (exit status 2) in ibv_create_qp"},
		{"keys of mmap that are 0", ibvtest.Env{Mutant: "zero_mmap_key"}, unchanged},
		{"no VALID_OUTPUT", ibvtest.Env{Mutant: "no_valid_output"}, unchanged},
		{"capabilities that no device has", ibvtest.Env{Mutant: "caps_lie"}, unchanged},
		{"values of counters at another stride", ibvtest.Env{Mutant: "wrong_stride"}, unchanged},
		{"a length beyond the response", ibvtest.Env{Mutant: "wrong_length"}, unchanged},
		{"unknown bits of comp_mask", ibvtest.Env{Mutant: "unknown_comp_mask"}, unchanged},
		{"a wrong number of a queue pair", ibvtest.Env{Mutant: "wrong_qp_number"}, unchanged},
	} {
		t.Run(m.name, func(t *testing.T) {
			got := doctor(t, m.e)
			if m.want == unchanged {
				if a, b := strings.Join(got, "\n"), strings.Join(right, "\n"); a != b {
					t.Errorf("the checks are\n%s\nwant\n%s", a, b)
				}
				return
			}
			for _, line := range got {
				if strings.Contains(line, "mlx5_0") && strings.Contains(line, m.want) {
					t.Log(line)
					return
				}
			}
			t.Errorf("no check of mlx5_0 says %q:\n%s", m.want, strings.Join(got, "\n"))
		})
	}
}
