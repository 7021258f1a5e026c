package rdma

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/soft"
	"github.com/flowtally/flowtally/probe"
)

// The device goes away while it counts. After a removal it is not listed any more; after a failure it is listed, but cannot be
// opened.
func TestTheSoftwareDeviceCountsAgainAfterItsReturn(t *testing.T) {
	for _, c := range []struct {
		how     string
		away    func(*ibvtest.Control, string) error
		without []string
	}{
		{"removed", (*ibvtest.Control).Remove, nil},
		{"removed without devx", (*ibvtest.Control).Remove, []string{"devx"}},
		{"failed", (*ibvtest.Control).Fatal, nil},
		{"failed without devx", (*ibvtest.Control).Fatal, []string{"devx"}},
	} {
		t.Run(c.how, func(t *testing.T) {
			s := newSoftware(t)
			s.Env.Without = c.without
			control := s.Controlled(t)
			b := s.open(t)
			streams := soft.Streams(t)[:1]
			f := backend.Placed{Flow: streams[0].Flow}
			in := mustInstall(t, b, f)
			sent := make(map[string]lab.Tally)
			s.Send(t, streams, flow.Ingress, 100, sent)
			sampledAs(t, b, in[0].ID, backend.Pair(sent[f.Name]))

			if err := control.PortDown(s.Device); err != nil {
				t.Fatal(err)
			}
			lab.Eventually(t, "the port is down", func() bool { return errors.Is(b.Gone()[f.Name], errPortDown) })
			if err := b.Remove(t.Context(), []backend.Placed{f}); err != nil {
				t.Fatal(err)
			}
			if got, _ := sampleOf(t, b, in[0].ID); got != backend.Pair(sent[f.Name]) {
				t.Errorf("a flow on a port that went down shows %+v, want %+v", got, sent[f.Name])
			}
			if err := control.PortUp(s.Device); err != nil {
				t.Fatal(err)
			}
			lab.Eventually(t, "the port is up", func() bool { return b.Fits(f.Flow, nil, nil) == nil })
			in = mustInstall(t, b, f)
			clear(sent)
			s.Send(t, streams, flow.Ingress, 50, sent)
			sampledAs(t, b, in[0].ID, backend.Pair(sent[f.Name]))

			if err := c.away(control, s.Device); err != nil {
				t.Fatal(err)
			}
			lab.Eventually(t, "the device is gone", func() bool { return errors.Is(b.Gone()[f.Name], backend.ErrDeviceLost) })
			if err := b.Remove(t.Context(), []backend.Placed{f}); err != nil {
				t.Fatal(err)
			}
			if got, _ := sampleOf(t, b, in[0].ID); got != backend.Pair(sent[f.Name]) {
				t.Errorf("a flow on a device that went shows %+v, want %+v", got, sent[f.Name])
			}
			if _, err := b.Install(t.Context(), []backend.Placed{f}); !errors.Is(err, backend.ErrDeviceLost) {
				t.Errorf("installing on a device that is gone: %v", err)
			}
			before := s.Calls(t, "DEVICE_LIST")
			lab.Eventually(t, "a search in vain", func() bool { return s.Calls(t, "DEVICE_LIST") > before })
			if err := control.Return(s.Device); err != nil {
				t.Fatal(err)
			}
			lab.Eventually(t, "the device is back", func() bool { return b.Fits(f.Flow, nil, nil) == nil })
			in = mustInstall(t, b, f)
			clear(sent)
			s.Send(t, streams, flow.Ingress, 70, sent)
			sampledAs(t, b, in[0].ID, backend.Pair(sent[f.Name]))
		})
	}
}

// The kernel refuses one call in each case. The error must name the verb, and Close must find no object that was left behind.
func TestARefusedVerbIsNamedAndLeavesNoObject(t *testing.T) {
	withoutDevX := []string{"devx"}
	for _, c := range []struct {
		verb, call string
		without    []string
	}{
		{verb: "ibv_open_device", call: "GET_CONTEXT"},
		{verb: "ibv_alloc_pd", call: "ALLOC_PD", without: withoutDevX},
		{verb: "ibv_create_cq", call: "CQ_CREATE", without: withoutDevX},
		{verb: "ibv_create_qp", call: "QP_CREATE", without: withoutDevX},
		{verb: "ibv_modify_qp", call: "MODIFY_QP", without: withoutDevX},
		{verb: "ibv_create_counters", call: "COUNTERS_CREATE", without: withoutDevX},
		{verb: "ibv_create_flow", call: "EX_CREATE_FLOW", without: withoutDevX},
		{verb: "ibv_read_counters", call: "COUNTERS_READ", without: withoutDevX},
	} {
		t.Run(c.verb, func(t *testing.T) {
			s := newSoftware(t)
			s.Env.Without = c.without
			s.Env.Fail = []ibvtest.Fault{{Verb: c.call, Errno: "EIO"}}
			s.refuses(t, c.verb)
		})
	}
}

// The host's libibverbs asks no kernel to attach a counter, and lists the devices of any kernel that has a list. Other
// libraries may fail.
func TestAVerbThatTheLibraryRefusesIsNamedAndLeavesNoObject(t *testing.T) {
	for _, verb := range []string{"ibv_get_device_list", "ibv_attach_counters_point_flow"} {
		t.Run(verb, func(t *testing.T) {
			s := &softwareNIC{soft.NewNIC(t, &libraries)}
			s.Env.Without = []string{"devx"}
			s.Env.Fail = []ibvtest.Fault{{Verb: verb, Errno: "EIO"}}
			s.refuses(t, verb)
		})
	}
}

func TestAKernelThatListsNoDeviceHasNone(t *testing.T) {
	s := newSoftware(t)
	s.Env.Fail = []ibvtest.Fault{{Verb: "DEVICE_LIST", Errno: "EIO"}}
	b := s.open(t)
	if _, err := b.Install(t.Context(), []backend.Placed{{Flow: soft.Streams(t)[0].Flow}}); !errors.Is(err, backend.ErrNoDevice) {
		t.Errorf("error %v, want that there is no device", err)
	}
}

// refuses opens a device and installs a flow, which must fail with the verb's EIO.
func (s *softwareNIC) refuses(t *testing.T, verb string) {
	t.Helper()
	s.Env.Set(t.Setenv)
	var b *Backend
	err := s.Wire.Near.NS.Do(func() (err error) {
		b, err = New(t.Context(), s.options())
		return err
	})
	if err == nil {
		_, err = b.Install(t.Context(), []backend.Placed{{Flow: soft.Streams(t)[0].Flow}})
		if err := b.Close(false); err != nil {
			t.Errorf("closing: %v", err)
		}
	}
	if !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), verb) || errors.Is(err, backend.ErrNoDevice) {
		t.Errorf("error %v, want %s's EIO", err, verb)
	}
}

// The device has DevX, but refuses one of its commands. It is not lost: verbs count on it.
func TestADeviceWhoseDevXFailsCountsByVerbs(t *testing.T) {
	s := newSoftware(t)
	s.Env.Fail = []ibvtest.Fault{{Verb: "FLOW_MATCHER_CREATE", Errno: "EOPNOTSUPP"}}
	in := mustInstall(t, s.open(t), backend.Placed{Flow: soft.Streams(t)[0].Flow})
	if got := in[0].Source.Modes(); got != "dont-trap" {
		t.Errorf("counted in mode %q", got)
	}
}

func TestADeviceStealsOnlyIfTheConfigurationAllowsIt(t *testing.T) {
	s := newSoftware(t)
	s.Env.Without = []string{"devx", "dont_trap"}
	b := s.open(t)
	f := backend.Placed{Flow: soft.Streams(t)[0].Flow}
	if err := b.Fits(f.Flow, nil, nil); !errors.Is(err, probe.ErrNotSupported) || !strings.Contains(err.Error(), "rdma.steal") && !strings.Contains(err.Error(), "taking the packets away") {
		t.Errorf("error %v, want that the device could only steal", err)
	}
	f.Direction = flow.Egress
	if err := b.Fits(f.Flow, nil, nil); err != nil {
		t.Errorf("counting sent packets steals them from nobody: %v", err)
	}
	f.Direction, f.Action = flow.Ingress, flow.Drop
	if in := mustInstall(t, b, f); in[0].Source.Modes() != "drop" || !in[0].Takes {
		t.Errorf("installed %+v", in[0])
	}
	s.Config.RDMA.Steal = true
	f.Flow = soft.Streams(t)[1].Flow // mlx5_core refuses a rule that does not drop beside one with the same match that does
	if in := mustInstall(t, s.open(t), f); in[0].Source.Modes() != "steal" || !in[0].Takes {
		t.Errorf("installed %+v", in[0])
	}
}

func TestDevicesThatCannotCountSayWhy(t *testing.T) {
	s := newSoftware(t)
	s.Env.Without = []string{"devx", "raw", "flows", "counters"}
	s.Env.Set(t.Setenv)
	err := s.Wire.Near.NS.Do(func() error {
		_, err := New(t.Context(), s.options())
		return err
	})
	var u *probe.UnsupportedError
	if !errors.As(err, &u) || u.Object != s.Device || u.Reason == "" || u.Fix == "" || errors.Is(err, backend.ErrNoDevice) {
		t.Errorf("error %v, want a conclusive no of the device", err)
	}
}

// A rule that stays in the device hides those below it. So the device counts nothing until the rule is out, and then counts
// again.
func TestTheSoftwareDeviceCountsAgainOnceAStuckRuleIsOut(t *testing.T) {
	s := newSoftware(t)
	// The first call belongs to the trial when the device is opened. The next two fail: one for each of two flows.
	s.Env.Fail = []ibvtest.Fault{{Verb: "FLOW_DESTROY", Errno: "EBUSY", From: 2, To: 3}}
	b := s.open(t)
	streams := soft.Streams(t)[:1]
	top := backend.Placed{Flow: streams[0].Flow}
	low := backend.Placed{Flow: flow.Flow{Name: "low", Priority: 200, Match: flow.MustParse("m", "udp").Match}}
	mustInstall(t, b, top, low)
	if err := b.Remove(t.Context(), []backend.Placed{top}); err != nil {
		t.Fatal(err)
	}
	if err := b.Gone()["low"]; !errors.Is(err, errRuleStuck) {
		t.Errorf("gone: %v, want that a rule is stuck", err)
	}
	if err := b.Remove(t.Context(), []backend.Placed{low}); err != nil {
		t.Fatal(err)
	}
	lab.Eventually(t, "the rules are out", func() bool { return b.Fits(low.Flow, nil, nil) == nil })
	in := mustInstall(t, b, low)
	sent := make(map[string]lab.Tally)
	s.Send(t, streams, flow.Ingress, 100, sent)
	sampledAs(t, b, in[0].ID, backend.Pair(sent[top.Name]))
}
