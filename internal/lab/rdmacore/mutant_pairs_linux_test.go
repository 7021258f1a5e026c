//go:build releases

package rdmacore

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/ibv/ibvtest"
)

// TestMutantKernelsOfQueuePairsLeaveTheInstanceAlive runs instances with a queue pair over uverbs kernels that
// misbehave, over the newest release. The verbs that lead to RTS, and the first operation, end the process of the
// trial: the instance lives, and its condition names the verb and the cause. The error of a kernel that only returns
// errors is in the error of the start.
func TestMutantKernelsOfQueuePairsLeaveTheInstanceAlive(t *testing.T) {
	overKernel(t, ibvtest.Env{}, []string{"sid"}, func(t *testing.T) {
		const rc, ud, srd = dataplane.RC, dataplane.UD, dataplane.SRD
		fail := func(verb, errno string, from int) ibvtest.Env {
			return ibvtest.Env{Fail: []ibvtest.Fault{{Verb: verb, Errno: errno, From: from}}}
		}
		for _, m := range []struct {
			name string
			typ  dataplane.QueuePairType
			e    ibvtest.Env
			want string // in the result
		}{
			{"right", rc, ibvtest.Env{}, "counted 10"},
			{"right", ud, ibvtest.Env{}, "counted 10"},
			{"right", srd, ibvtest.Env{}, "counted 10"},
			{"INIT ends the process", rc, fail("MODIFY_QP", "ABORT", 1), "ended (exit status 2) in ibv_modify_qp"},
			{"RTR ends the process", rc, fail("MODIFY_QP", "ABORT", 2), "ended (exit status 2) in ibv_modify_qp"},
			{"RTS exits with success", rc, fail("MODIFY_QP", "EXIT", 3), "ended (exit status 0) in ibv_modify_qp"},
			{"RTR never returns", rc, ibvtest.Env{Delay: []ibvtest.Delay{{Verb: "MODIFY_QP", Time: time.Hour}}}, "had not returned after 5s in ibv_modify_qp"},
			{"RTR returns an error", rc, fail("MODIFY_QP", "EREMOTEIO", 2), "ibv_modify_qp: remote I/O error"},
			{"an address handle ends the process", ud, fail("CREATE_AH", "ABORT", 0), "ended (exit status 2) in ibv_create_ah"},
			{"an address handle ends the process", srd, fail("CREATE_AH", "EXIT", 0), "ended (exit status 0) in ibv_create_ah"},
			{"attaching a counter ends the process", srd, fail("QP_ATTACH_COMP_CNTR", "ABORT", 0), "in ibv_qp_attach_comp_cntr"},
			{"a completion of another request", rc, ibvtest.Env{Mutant: "wrong_completion"}, "ibv_poll_cq returned a completion of no request"},
			{"a wrong number of a queue pair", rc, ibvtest.Env{Mutant: "wrong_qp_number"}, "queue-pair-error: it is in state ERR: send ended with: local QP operation error"},
			{"handles that no object has", rc, ibvtest.Env{Mutant: "wrong_handle"}, "mlx5_0: duplicating its event descriptor: bad file descriptor"},
			// The library waits for a number of events from the missing half, so from older contents of its stack. Where
			// it is not 0 for ibv_destroy_qp, that verb waits, and otherwise ibv_destroy_cq does.
			{"responses cut in half", rc, ibvtest.Env{Mutant: "truncated_response"}, "had not returned after 5s in ibv_destroy_"},
			{"keys of mmap that are 0", rc, ibvtest.Env{Mutant: "zero_mmap_key"}, "counted 10"},
			{"capabilities that no device has", rc, ibvtest.Env{Mutant: "caps_lie"}, "counted 10"},
			{"a length beyond the response", rc, ibvtest.Env{Mutant: "wrong_length"}, "counted 10"},
			{"another errno", rc, ibvtest.Env{Mutant: "wrong_errno"}, "counted 10"},
		} {
			t.Run(fmt.Sprintf("%s/%s", m.typ, m.name), func(t *testing.T) {
				if strings.Contains(m.want, "after 5s") && testing.Short() {
					t.Skip("takes 5 s")
				}
				start := time.Now()
				got := postOverMutant(t, m.typ, m.e, m.want)
				if t.Log(time.Since(start).Round(time.Millisecond), got); !strings.Contains(got, m.want) {
					t.Errorf("the result is %q, want %q in it", got, m.want)
				}
			})
		}
	})
}

// postOverMutant runs an instance with a queue pair that is its own peer, posts ten operations, and returns the result: the
// error of the start, the number of counted operations, or the conditions. The instance looks for conditions now and then:
// postOverMutant waits for one with the text want.
func postOverMutant(t *testing.T, typ dataplane.QueuePairType, e ibvtest.Env, want string) (result string) {
	device := "mlx5_0"
	if typ == dataplane.SRD {
		device = "efa_0"
	}
	e.Devices = []ibvtest.Device{{Name: "mlx5_0", Netdev: "v0"}, {Name: "efa_0", Netdev: "v1"}}
	e.Set(t.Setenv)
	cfg := dataplane.Config{
		Instance: "mutant", Backend: flow.Sim, Mirror: dataplane.MirrorConfig{Path: filepath.Join(t.TempDir(), "mutant.mirror")},
		QueuePairs: []dataplane.QueuePair{{
			Name: "own", Device: device, Type: typ, Connect: "own", MessageSize: 256,
			Counters: []dataplane.CompletionCounter{{Name: "sent", Operations: []dataplane.Operation{dataplane.Send}}},
		}},
	}
	i, err := engine.New(context.Background(), cfg, engine.Options{Logger: slog.New(slog.DiscardHandler), Trial: engine.SelfTrial()})
	if err != nil {
		return "start: " + err.Error()
	}
	defer i.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	posted, err := i.QueuePairs().Post(ctx, "own", dataplane.Send, 10)
	if err == nil && posted.Errors == 0 {
		return fmt.Sprintf("counted %d", posted.Completed)
	}
	for until := time.Now().Add(20 * time.Second); !strings.Contains(result, want) && time.Now().Before(until); time.Sleep(time.Millisecond) {
		conditions, because := i.Conditions(t.Context())
		result = fmt.Sprintf("posting: %+v, %v", posted, err)
		for _, c := range conditions {
			result += fmt.Sprintf("; %s: %s", c.Code, c.Text)
		}
		if because != nil {
			t.Fatal(because)
		}
	}
	return result
}
