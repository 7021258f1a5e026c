package engine

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/trial"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/hosted"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/probe"
)

// A library that ends its process, or does not return, costs the device: XDP counts every packet,
// and the placement, the condition and the doctor's result name the verb. Without a fault the
// device counts.
func TestALibraryThatCrashesCostsItsDevice(t *testing.T) {
	const hang = time.Hour
	for _, c := range []struct {
		name    string
		without []string
		fail    ibvtest.Fault
		delay   ibvtest.Delay
		verb    string // "": the device counts
		how     string
		library bool // it is the library that is left alone, and not the device
	}{
		{name: "sound"},
		{name: "devx", fail: ibvtest.Fault{Verb: "CREATE_FLOW", Errno: "ABORT"}, verb: "mlx5dv_create_flow", how: "aborts, as FAIL says"},
		{name: "the second way of DevX", fail: ibvtest.Fault{Verb: "CREATE_FLOW", Errno: "ABORT", From: 3}, verb: "mlx5dv_create_flow", how: "aborts"},
		{name: "verbs", without: []string{"devx"}, fail: ibvtest.Fault{Verb: "EX_CREATE_FLOW", Errno: "ABORT"}, verb: "ibv_create_flow", how: "exit status 2"},
		{name: "a read", without: []string{"devx"}, fail: ibvtest.Fault{Verb: "COUNTERS_READ", Errno: "ABORT"}, verb: "ibv_read_counters", how: "aborts"},
		{name: "the device list", fail: ibvtest.Fault{Verb: "DEVICE_LIST", Errno: "ABORT"}, verb: "ibv_get_device_list", how: "aborts", library: true},
		{name: "a verb that does not return", delay: ibvtest.Delay{Verb: "GET_CONTEXT", Time: hang}, verb: "ibv_open_device", how: "had not returned after 5s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.delay.Verb != "" && testing.Short() {
				t.Skip("takes 5 s")
			}
			b := newSoftBench(t, webFlow(t))
			b.opts.Trial = SelfTrial()
			b.Env.Without = c.without
			if c.fail.Verb != "" {
				b.Env.Fail = []ibvtest.Fault{c.fail}
			}
			if c.delay.Verb != "" {
				b.Env.Delay = []ibvtest.Delay{c.delay}
			}
			var conditions []dataplane.Condition
			p := b.tryOnce(t)
			conditions = b.e.guard.Conditions()
			if c.verb == "" {
				if p.Source.Backend != "rdma" || len(conditions) > 0 {
					t.Errorf("counted by %+v, conditions %+v", p, conditions)
				}
				return
			}
			reason := refusedBy(p, "rdma")
			if p.Source.Backend != "xdp" || !strings.Contains(reason, c.verb) || !strings.Contains(reason, c.how) {
				t.Errorf("counted by %s, rdma's reason is %q; want xdp, and %q in %q", p.Source.Backend, reason, c.how, c.verb)
			}
			object := b.Device
			if c.library {
				object = "libibverbs"
			}
			if len(conditions) != 1 || conditions[0].Code != "rdma-crash" || conditions[0].Object != object || !strings.Contains(conditions[0].Text, c.verb) {
				t.Fatalf("conditions %+v", conditions)
			}
			if c.delay.Verb != "" {
				return
			}
			var answers []probe.Result
			if err := b.Wire.Near.NS.Do(func() error {
				answers = Probe(t.Context(), ProbeOptions{Interfaces: []string{b.Wire.Near.Name}, RDMA: b.Config.RDMA, Trial: SelfTrial()})
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			told := false
			for _, a := range answers {
				told = told || a.Backend == "rdma" && a.Answer == probe.No && strings.Contains(a.Reason, c.verb) && a.Fix == trial.FixCrash
			}
			if !told {
				t.Errorf("the doctor does not name %s: %+v", c.verb, answers)
			}
			if c.name == "verbs" { // one repaired library is enough
				lab.Step(t, conditions[0].Fix, "install another release of rdma-core, or of the device's own libraries, and start the instance again")
				b.Env.Fail = nil
				if p := b.tryOnce(t); p.Source.Backend != "rdma" || len(b.e.guard.Conditions()) > 0 {
					t.Errorf("with another library: counted by %+v, conditions %+v", p, b.e.guard.Conditions())
				}
			}
		})
	}
}

// A library that ends its process with exit code 0 fails its trial, too. Only the trial runs: a
// process of tests that exits in a verb would pass them.
func TestALibraryThatExitsFailsItsTrial(t *testing.T) {
	s := newSoftNIC(t)
	s.Env.Fail = []ibvtest.Fault{{Verb: "DEVICE_LIST", Errno: "EXIT"}}
	s.Env.Set(t.Setenv)
	g := trial.New(trial.Options{Command: SelfTrial(), RDMA: s.Config.RDMA, QueuePairs: s.Config.QueuePairs, Logger: slog.New(slog.DiscardHandler)})
	if err := g.Library(); err == nil || !strings.Contains(err.Error(), "ended (exit status 0) in ibv_get_device_list") {
		t.Errorf("the trial says %v", err)
	}
}

// A device that is excluded is not opened, nor is a library.
func TestAnExcludedDeviceIsNotOpened(t *testing.T) {
	for _, library := range []bool{false, true} {
		b := newSoftBench(t, webFlow(t))
		if b.exclude = !library; library {
			b.host = &hosted.Host{Excluded: map[string]string{"": "the plugin died twice in dlopen"}}
		}
		p := b.tryOnce(t)
		if reason := refusedBy(p, "rdma"); p.Source.Backend != "xdp" || !strings.Contains(reason, "the plugin died twice") {
			t.Errorf("counted by %s, rdma's reason is %q", p.Source.Backend, reason)
		}
		if _, err := os.Stat(b.Env.Statistics); library != errors.Is(err, fs.ErrNotExist) {
			t.Errorf("libibverbs is left alone: %v, its statistics: %v", library, err)
		} else if !library && b.Calls(t, "GET_CONTEXT") != 0 {
			t.Error("the device was opened")
		}
	}
}

// A library that crashes over a queue pair, on its way to RTS or at its first operation, costs the queue pairs of the
// device: the instance starts, their counters stand still, and they are not tried again and again.
func TestALibraryThatCrashesCostsItsQueuePairs(t *testing.T) {
	for _, c := range []struct {
		verb, call, device string // the call is the verb's to the kernel: what it does in memory alone crashes in the shim
		from               int    // number of the call that crashes
		typ                dataplane.QueuePairType
	}{
		{"ibv_create_qp", "QP_CREATE", "", 1, dataplane.RC}, {"ibv_get_device_list", "DEVICE_LIST", "libibverbs", 1, dataplane.RC},
		{"ibv_query_device", "QUERY_DEVICE", "", 1, dataplane.RC}, {"ibv_query_port", "QUERY_PORT", "", 4, dataplane.RC},
		{"ibv_query_gid", "QUERY_GID_ENTRY", "", 1, dataplane.UD}, {"ibv_qp_attach_comp_cntr", "ibv_qp_attach_comp_cntr", "", 1, dataplane.UD},
		{"ibv_modify_qp", "MODIFY_QP", "", 2, dataplane.RC}, {"ibv_modify_qp", "MODIFY_QP", "", 3, dataplane.RC},
		{"ibv_create_ah", "CREATE_AH", "", 1, dataplane.UD}, {"ibv_post_recv", "ibv_post_recv", "", 1, dataplane.RC},
		{"ibv_post_send", "ibv_post_send", "", 1, dataplane.UD}, {"ibv_post_send", "ibv_post_send", "", 3, dataplane.RC},
		{"ibv_poll_cq", "ibv_poll_cq", "", 2, dataplane.RC},
	} {
		t.Run(fmt.Sprintf("%s/%s@%d", c.typ, c.verb, c.from), func(t *testing.T) {
			s := nicThatFails(t, c.call)
			s.Env.Fail = []ibvtest.Fault{{Verb: c.call, Errno: "ABORT", From: c.from}}
			cfg := s.pairConfig(t, dataplane.Send)
			for i := range cfg.QueuePairs {
				cfg.QueuePairs[i].Type = c.typ
			}
			s.Env.Set(t.Setenv)
			var e *Engine
			if err := s.Wire.Near.NS.Do(func() (err error) {
				e, err = New(t.Context(), cfg, Options{Trial: SelfTrial()})
				return err
			}); err != nil {
				t.Fatal(err)
			}
			endWith(t, e)
			object := cmp.Or(c.device, s.Device)
			said := false
			for _, k := range e.guard.Conditions() {
				said = said || k.Object == object && strings.Contains(k.Text, c.verb)
			}
			if !said {
				t.Errorf("conditions %+v do not say that %s is left alone for %s", e.guard.Conditions(), object, c.verb)
			}
			opened := s.Calls(t, c.call)
			if _, err := e.QueuePairs().Post(t.Context(), "a", dataplane.Send, 1); !errors.Is(err, dataplane.ErrNotConnected) {
				t.Errorf("posting: %v", err)
			}
			e.pairs.CheckDevices()
			awaitCondition(t, e, "queue-pair-lost", "a", true)
			if now := s.Calls(t, c.call); now != opened {
				t.Errorf("%d calls after %d", now, opened)
			}
		})
	}
}
