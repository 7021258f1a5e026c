//go:build cgo

package ibv

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/probe"
)

// everyDevXVerb uses all of DevX once, with a flow of that UDP port, and undoes it. The two
// errors are the first of the doing and the first of the undoing.
func everyDevXVerb(b *bench, port uint16) (doing, undoing error) {
	undo := func(o interface{ Close() error }) {
		if err := o.Close(); err != nil && undoing == nil {
			undoing = err
		}
	}
	dx, err := b.ctx.DevX()
	if err != nil {
		return err, nil
	}
	defer undo(dx)
	counters, err := dx.AllocFlowCounters(2)
	if err != nil {
		return err, nil
	}
	defer undo(counters)
	m, err := dx.CreateMatcher(MatcherAttr{Mask: udpPortMask()})
	if err != nil {
		return err, nil
	}
	defer undo(m)
	f, err := m.CreateFlow(udpPort(port), FlowActions{Counters: counters, Offset: 1, DefaultMiss: true})
	if err != nil {
		return err, nil
	}
	defer undo(f)
	return counters.Query(make([]FlowCount, 2)), nil
}

// Every verb and every firmware command fails in turn. The error names verb and device, and no
// object is left to keep the context open.
func TestFailureOfEveryDevXVerbIsNamedAndLeaksNothing(t *testing.T) {
	libs, wire := softLibs(t), newWire(t)
	for i, c := range []struct {
		fails  string // the error names it
		undoes bool
	}{
		{fails: "mlx5dv_open_device"},
		{fails: "mlx5dv_devx_obj_create"},
		{fails: "ALLOC_FLOW_COUNTER"},
		{fails: "mlx5dv_create_flow_matcher"},
		{fails: "mlx5dv_create_flow"},
		{fails: "mlx5dv_devx_obj_query"},
		{fails: "QUERY_FLOW_COUNTER"},
		{fails: "ibv_destroy_flow", undoes: true},
		{fails: "mlx5dv_destroy_flow_matcher", undoes: true},
		{fails: "mlx5dv_devx_obj_destroy", undoes: true},
	} {
		t.Run(c.fails, func(t *testing.T) {
			fault := c.fails + "=ENOMEM"
			if c.fails == "mlx5dv_open_device" {
				fault += "@2" // the first context is that of ibv_open_device
			}
			b := newLibrary(t, wire, "", "FAIL", fault)
			b.lib.opts.MLX5 = libs.Shim
			b.open()
			doing, undoing := everyDevXVerb(b, uint16(i)) // a port of its own: the flow of an earlier round may still exist
			got, other := doing, undoing
			if c.undoes {
				got, other = undoing, doing
			}
			var e *Error
			if !errors.As(got, &e) || e.Errno != syscall.ENOMEM || e.Device != device() || !strings.Contains(e.Verb, c.fails) {
				t.Errorf("got %v, want ENOMEM of %s", got, c.fails)
			}
			if other != nil {
				t.Errorf("and %v", other)
			}
		})
	}
}

// everyDevXQueueVerb makes a collapsed completion queue and a queue pair that is its own peer, takes it through all states,
// and undoes it. The errors are as those of everyDevXVerb.
func everyDevXQueueVerb(b *bench) (doing, undoing error) {
	undo := func(o interface{ Close() error }) {
		if err := o.Close(); err != nil && undoing == nil {
			undoing = err
		}
	}
	dx, err := b.ctx.DevX()
	if err != nil {
		return err, nil
	}
	defer undo(dx)
	pd, err := dx.AllocPD()
	if err != nil {
		return err, nil
	}
	defer undo(pd)
	uar, err := dx.AllocUAR()
	if err != nil {
		return err, nil
	}
	defer undo(uar)
	eqn, err := dx.QueryEQN(0)
	if err != nil {
		return err, nil
	}
	umem, err := dx.AllocUMEM(128)
	if err != nil {
		return err, nil
	}
	defer undo(umem)
	cq, err := dx.CreateCQ(DevXCQOptions{UMEM: umem, Doorbell: 64, UAR: uar, EQN: eqn, Collapsed: true, IgnoreOverrun: true})
	if err != nil {
		return err, nil
	}
	defer undo(cq)
	qp, err := dx.CreateQP(pd, DevXQPOptions{SendCQ: cq, RecvCQ: cq, UAR: uar, MaxSendWR: 1, MaxRecvWR: 1})
	if err != nil {
		return err, nil
	}
	defer undo(qp)

	gid, err := b.ctx.QueryGID(1, 0)
	if err != nil {
		return err, nil
	}
	way := AHAttr{IsGlobal: true, PortNum: 1, GRH: GlobalRoute{DGID: gid, HopLimit: 64}}
	for _, to := range []struct {
		attr QPAttr
		mask QPAttrMask
	}{
		{QPAttr{State: QPSInit, PortNum: 1, AccessFlags: AccessRemoteWrite}, QPAttrPort | QPAttrPKeyIndex | QPAttrAccessFlags},
		{QPAttr{State: QPSRTR, PathMTU: MTU4096, DestQPNum: qp.Number(), MaxDestRdAtomic: 1, MinRNRTimer: 12, AH: way},
			QPAttrAV | QPAttrPathMTU | QPAttrDestQPN | QPAttrRQPSN | QPAttrMaxDestRdAtomic | QPAttrMinRNRTimer},
		{QPAttr{State: QPSRTS, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 1},
			QPAttrSQPSN | QPAttrTimeout | QPAttrRetryCnt | QPAttrRNRRetry | QPAttrMaxQPRdAtomic},
		{QPAttr{State: QPSErr}, 0},
		{QPAttr{State: QPSReset}, 0},
	} {
		if err := qp.Modify(to.attr, to.mask|QPAttrState); err != nil {
			return err, nil
		}
	}
	_, err = qp.Query(QPAttrState)
	return err, nil
}

// Each verb and command of a DevX queue fails in turn, where the kernel returns its error. Only mlx5dv_devx_alloc_uar does not:
// libmlx5 returns the page that it got when the device was opened.
func TestFailureOfEveryVerbOfDevXQueuesIsNamedAndLeaksNothing(t *testing.T) {
	wire := newWire(t)
	for _, c := range []struct {
		fails  string // a name of the kernel
		verb   string // the error names it; "": there is no error
		undoes bool
	}{
		{fails: "NOTHING"},
		{fails: "ALLOC_PD", verb: "ibv_alloc_pd"},
		{fails: "DEVX_QUERY_EQN", verb: "mlx5dv_devx_query_eqn"},
		{fails: "DEVX_UMEM_REG", verb: "mlx5dv_devx_umem_reg"},
		{fails: "DEVX_OBJ_CREATE", verb: "mlx5dv_devx_obj_create (CREATE_CQ)"},
		{fails: "CREATE_CQ", verb: "mlx5dv_devx_obj_create (CREATE_CQ)"},
		{fails: "CREATE_QP", verb: "mlx5dv_devx_obj_create (CREATE_QP)"},
		{fails: "DEVX_OBJ_MODIFY", verb: "mlx5dv_devx_obj_modify (RST2INIT_QP)"},
		{fails: "RST2INIT_QP", verb: "mlx5dv_devx_obj_modify (RST2INIT_QP)"},
		{fails: "CREATE_AH", verb: "ibv_create_ah"},
		{fails: "INIT2RTR_QP", verb: "mlx5dv_devx_obj_modify (INIT2RTR_QP)"},
		{fails: "RTR2RTS_QP", verb: "mlx5dv_devx_obj_modify (RTR2RTS_QP)"},
		{fails: "2ERR_QP", verb: "mlx5dv_devx_obj_modify (2ERR_QP)"},
		{fails: "2RST_QP", verb: "mlx5dv_devx_obj_modify (2RST_QP)"},
		{fails: "DEVX_OBJ_QUERY", verb: "mlx5dv_devx_obj_query (QUERY_QP)"},
		{fails: "QUERY_QP", verb: "mlx5dv_devx_obj_query (QUERY_QP)"},
		{fails: "DEVX_OBJ_DESTROY", verb: "mlx5dv_devx_obj_destroy (DESTROY_QP)", undoes: true},
		{fails: "DEVX_UMEM_DEREG", verb: "mlx5dv_devx_umem_dereg", undoes: true},
		{fails: "PD_DESTROY", verb: "ibv_dealloc_pd", undoes: true},
	} {
		t.Run(c.fails, func(t *testing.T) {
			b := newLibrary(t, wire, "", "FAIL", c.fails+"=ENOMEM")
			b.open()
			doing, undoing := everyDevXQueueVerb(b)
			got, other := doing, undoing
			if c.undoes {
				got, other = undoing, doing
			}
			if other != nil || c.verb == "" && got != nil {
				t.Errorf("got %v, and %v", got, other)
			}
			var e *Error
			if c.verb != "" && (!errors.As(got, &e) || e.Errno != syscall.ENOMEM || e.Device != device() || e.Verb != c.verb) {
				t.Errorf("got %v, want ENOMEM of %q", got, c.verb)
			}
		})
	}
}

// The device does not report how it allocates bulks.
func TestDevXWithoutCapabilitiesHasSingleCounters(t *testing.T) {
	b := newDevXBench(t, "FAIL", "QUERY_HCA_CAP=EINVAL")
	if _, err := b.dx.AllocFlowCounters(2); !errors.Is(err, probe.ErrNotSupported) && !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("a bulk: %v", err)
	}
	counter := b.counts(1)
	b.rule(0, MatchParam{}, MatchParam{}, FlowActions{Counters: counter, DefaultMiss: true})
	f := b.udpTo(1)
	b.send(f, repeats)
	b.wantCounts(counter, times(repeats, f))
}

// Depending on its release, rdma-core reads the actions of a flow 16 or 24 bytes apart. A library
// without __mlx5dv_create_flow does not report which, and can name only the first counter of an
// object.
func TestDevXFlowsCountWithTheActionsOfEveryRelease(t *testing.T) {
	libs := softLibs(t)
	for _, c := range []struct{ name, mlx5, verb string }{
		{"the host's", "", "mlx5dv_create_flow"},
		{"61.0", libs.Shim61, "mlx5dv_create_flow"},
		{"65", libs.Shim, "__mlx5dv_create_flow"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newDevXBenchWith(t, c.mlx5)
			if c.mlx5 == "" && b.dx.HasOffsets() {
				t.Skip("the host's rdma-core has __mlx5dv_create_flow")
			}
			offsets := c.verb == "__mlx5dv_create_flow"
			if b.dx.HasOffsets() != offsets {
				t.Fatalf("it has offsets: %v", b.dx.HasOffsets())
			}
			counters, dropped := b.counts(2), b.counts(1)
			m := must(b.dx.CreateMatcher(MatcherAttr{Mask: udpPortMask()}))(t)
			b.closes(m)
			flows := uint64(0)
			flow := func(port uint16, a FlowActions) {
				b.closes(must(m.CreateFlow(udpPort(port), a))(t))
				flows++
			}
			_, before := b.calls(nil)
			flow(1, FlowActions{Counters: counters, DefaultMiss: true})
			flow(2, FlowActions{Counters: dropped, Drop: true})
			flow(3, FlowActions{DefaultMiss: true})
			flow(4, FlowActions{Drop: true})
			want := []FlowCount{times(repeats, b.udpTo(1)), {}}
			if offsets {
				flow(5, FlowActions{Counters: counters, Offset: 1, DefaultMiss: true})
				want[1] = times(repeats, b.udpTo(5))
			} else if _, err := m.CreateFlow(udpPort(5), FlowActions{Counters: counters, Offset: 1, DefaultMiss: true}); !errors.Is(err, probe.ErrNotSupported) {
				t.Errorf("an offset: %v", err)
			}
			calls, _ := b.calls(before)
			wantCalls := ibvtest.Statistics{"CREATE_FLOW": flows}
			if offsets {
				wantCalls[c.verb] = flows
			}
			if diff := cmp.Diff(wantCalls, calls); diff != "" {
				t.Errorf("the flows were made by (-want +got):\n%s", diff)
			}
			for _, counters := range []*FlowCounters{nil, dropped} { // both types of the later actions arrive
				if _, err := m.CreateFlow(udpPort(7), FlowActions{Counters: counters, DefaultMiss: true, Drop: true}); !errors.Is(err, syscall.EOPNOTSUPP) {
					t.Errorf("two destinations: %v, libmlx5 returns EOPNOTSUPP", err)
				}
			}
			for port := uint16(1); port <= 5; port++ {
				b.send(b.udpTo(port), repeats)
			}
			b.wantCounts(counters, want...)
			b.wantCounts(dropped, times(repeats, b.udpTo(2)))
		})
	}
}

// Every object must still close.
func TestEveryDevXVerbOfARemovedDeviceReturnsErrDeviceGone(t *testing.T) {
	control := must(ibvtest.NewControl(filepath.Join(t.TempDir(), "control")))(t)
	defer control.Close()
	b := newLibrary(t, newWire(t), "", "CONTROL", control.Path())
	b.lib.opts.MLX5 = softLibs(t).Shim
	b.check(b.wire.Near.NS.Do(func() (err error) { b.ctx, err = b.lib.Open(device()); return err }))
	dx := must(b.ctx.DevX())(t)
	counters := must(dx.AllocFlowCounters(2))(t)
	m := must(dx.CreateMatcher(MatcherAttr{Mask: udpPortMask()}))(t)
	f := must(m.CreateFlow(udpPort(1), FlowActions{Counters: counters, DefaultMiss: true}))(t)

	b.check(control.Remove(device()))
	soon, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if e := must(b.ctx.NextEvent(soon))(t); e.Type != EventDeviceFatal {
		t.Fatalf("event %v", e.Type)
	}
	if err := counters.Query(make([]FlowCount, 2)); !errors.Is(err, ErrDeviceGone) {
		t.Errorf("a query after the end: %v", err)
	}
	if _, err := m.CreateFlow(udpPort(2), FlowActions{DefaultMiss: true}); !errors.Is(err, ErrDeviceGone) {
		t.Errorf("a flow after the end: %v", err)
	}
	for _, o := range []interface{ Close() error }{f, m, counters} {
		if err := o.Close(); err != nil && !errors.Is(err, ErrDeviceGone) {
			t.Errorf("closing after the end: %v", err)
		}
	}
	b.check(dx.Close())
	b.check(b.ctx.Close())

	b.check(control.Return(device()))
	for { // and it is whole again
		err := b.wire.Near.NS.Do(func() (err error) { b.ctx, err = b.lib.Open(device()); return err })
		if err == nil {
			break
		}
		if !errors.Is(err, ErrNoDevice) || soon.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	b.closes(b.ctx)
	doing, undoing := everyDevXVerb(b, 1)
	b.check(errors.Join(doing, undoing))
}
