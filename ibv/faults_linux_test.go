//go:build cgo

package ibv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/ibv/ibvtest"
)

// everyVerb uses every verb of this package on a ConnectX, one after the other, and closes all
// objects whatever failed on the way. It returns the first error of creation and the errors of
// closing.
func everyVerb(b *bench) (doing error, undoing []error) {
	step := func(err error) bool {
		if err != nil && doing == nil {
			doing = err
		}
		return err == nil
	}
	undo := func(o interface{ Close() error }) {
		if err := o.Close(); err != nil {
			undoing = append(undoing, err)
		}
		if err := o.Close(); err != nil && !errors.Is(err, ErrBusy) { // again is harmless
			undoing = append(undoing, fmt.Errorf("closing twice: %w", err))
		}
	}
	step(b.wire.Near.NS.Do(func() (err error) { _, err = b.lib.Devices(); return err }))
	var ctx *Context
	if !step(b.wire.Near.NS.Do(func() (err error) { ctx, err = b.lib.Open(device()); return err })) {
		return
	}
	defer undo(ctx)
	_, err := ctx.QueryDevice()
	step(err)
	_, err = ctx.QueryPort(1)
	step(err)
	_, err = ctx.QueryGID(1, 0)
	step(err)
	_, err = ctx.QueryCompCntrCaps()
	step(err)
	if err = askForEvent(ctx); !errors.Is(err, context.Canceled) {
		step(err)
	}
	pd, err := ctx.AllocPD()
	if !step(err) {
		return
	}
	defer undo(pd)
	cq, err := ctx.CreateCQ(CQOptions{})
	if !step(err) {
		return
	}
	defer undo(cq)
	_, err = cq.Poll(make([]WC, 1))
	step(err)
	qp, err := pd.CreateQP(QPOptions{Type: QPTRawPacket, SendCQ: cq, RecvCQ: cq, Cap: smallCap})
	if !step(err) {
		return
	}
	defer undo(qp)
	step(qp.Modify(QPAttr{State: QPSInit, PortNum: 1}, QPAttrState|QPAttrPort))
	_, err = qp.Query(QPAttrState)
	step(err)
	everyDataVerb(ctx, pd, cq, step, undo)
	n, err := ctx.CreateCounters()
	if !step(err) {
		return
	}
	defer undo(n)
	step(n.Attach(CounterAttach{CounterPackets, 0}))
	f, err := qp.CreateFlow(FlowAttr{Port: 1, Specs: []Spec{b.toUs(), CountSpec{Counters: n}}})
	if !step(err) {
		return
	}
	defer undo(f)
	step(n.Read(make([]uint64, 1), 0))
	return
}

// askForEvent waits for an event until the library was asked for one, and no shorter.
func askForEvent(c *Context) error {
	asked, end := context.WithCancel(context.Background())
	defer end()
	library := c.v
	defer func() { c.v = library }()
	c.v = asking{library, end}
	_, err := c.NextEvent(asked)
	return err
}

// asking is a library that records requests for an event.
type asking struct {
	verbs
	asked func()
}

func (l asking) getEvent(ctx handle) (event, syscall.Errno) {
	defer l.asked()
	return l.verbs.getEvent(ctx)
}

// everyDataVerb is the part of everyVerb that moves data and counts it.
func everyDataVerb(ctx *Context, pd *PD, cq *CQ, step func(error) bool, undo func(interface{ Close() error })) {
	m, err := pd.AllocMR(4096, everyAccess)
	if !step(err) {
		return
	}
	defer undo(m)
	gid, _ := ctx.QueryGID(1, 0)
	ah, err := pd.CreateAH(AHAttr{GRH: GlobalRoute{DGID: gid, HopLimit: 1}, IsGlobal: true, PortNum: 1})
	if !step(err) {
		return
	}
	defer undo(ah)
	k, err := ctx.CreateCompCntr(CompCntrOptions{})
	if !step(err) {
		return
	}
	defer undo(k)
	words := m.Bytes()[4096-16:]
	ext, err := ctx.CreateCompCntr(CompCntrOptions{External: &CompCntrMemory{Comp: words[:8], Err: words[8:]}})
	if !step(err) {
		return
	}
	defer undo(ext)
	_, err = cq.MLX5Ring()
	step(err)
	for _, w := range []func(uint64) error{k.Set, k.SetErr, k.Inc, k.IncErr} {
		step(w(1))
	}
	_, err = k.Read()
	step(err)
	_, err = k.ReadErr()
	step(err)
	qp, err := pd.CreateQP(QPOptions{Type: QPTUD, SendCQ: cq, RecvCQ: cq, Cap: smallCap})
	if !step(err) {
		return
	}
	defer undo(qp)
	step(qp.AttachCompCntr(k, QPAttachCompCntrOpSend))
	for to := QPSInit; to <= QPSRTS; to++ {
		if !step(qp.Modify(QPAttr{State: to, PortNum: 1, QKey: testQKey}, needed(QPTUD, to))) {
			return
		}
	}
	_, err = qp.PostRecv([]RecvWR{recv(m)})
	step(err)
	_, err = qp.PostSend([]SendWR{with(send(m), func(w *SendWR) { w.AH, w.RemoteQPN, w.RemoteQKey = ah, qp.Number(), testQKey })})
	step(err)
	_, err = cq.Poll(make([]WC, 2))
	step(err)
}

// descriptors lists the open descriptors of the process, by type.
func descriptors(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var open []string
	for _, e := range entries {
		if link, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil { // the directory's own is gone by now
			open = append(open, link)
		}
	}
	return open
}

// noMoreThan waits until the process has no more descriptors than before: other threads open some
// for a moment, of a namespace that they read.
func noMoreThan(t *testing.T, before []string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		after := descriptors(t)
		if len(after) <= len(before) {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%d descriptors are open, %d were before:\n%q\n%q", len(after), len(before), after, before)
			return
		}
	}
}

// Each verb fails in turn, with errnos known to this package and with an unknown one. The error
// names verb and device. The process neither crashes nor hangs, and closes every descriptor.
func TestFailureOfEveryVerbIsNamedAndLeaksNothing(t *testing.T) {
	verbs := strings.Fields(`ibv_get_device_list ibv_open_device ibv_query_device ibv_query_port ibv_query_comp_cntr_caps
		ibv_query_gid ibv_reg_mr ibv_create_ah ibv_create_comp_cntr efadv_create_comp_cntr mlx5dv_init_obj ibv_set_comp_cntr
		ibv_set_err_comp_cntr ibv_inc_comp_cntr ibv_inc_err_comp_cntr ibv_read_comp_cntr ibv_read_err_comp_cntr
		ibv_qp_attach_comp_cntr ibv_post_send ibv_post_recv ibv_destroy_comp_cntr ibv_destroy_ah ibv_dereg_mr
		ibv_get_async_event ibv_alloc_pd ibv_create_cq ibv_poll_cq ibv_create_qp ibv_modify_qp ibv_query_qp ibv_create_counters
		ibv_attach_counters_point_flow ibv_create_flow ibv_read_counters ibv_destroy_flow ibv_destroy_counters ibv_destroy_qp
		ibv_destroy_cq ibv_dealloc_pd ibv_close_device`)
	shim, wire := softLibs(t).Shim, newWire(t)
	for _, verb := range verbs {
		for _, errno := range []syscall.Errno{syscall.EIO, syscall.ENOMEM, syscall.EBUSY} {
			t.Run(fmt.Sprintf("%s/%d", verb, int(errno)), func(t *testing.T) {
				// After EBUSY the object is still open: close it again.
				times := ""
				destroys := strings.Contains(verb, "destroy") || strings.Contains(verb, "dealloc") || strings.Contains(verb, "dereg") || strings.Contains(verb, "close")
				if destroys && errno == syscall.EBUSY {
					times = "@1-1"
				}
				before := descriptors(t)
				fault := fmt.Sprintf("%s=%d%s", verb, int(errno), times)
				b := newLibrary(t, wire, shim, "FAIL", fault)
				b.lib.opts.MLX5, b.lib.opts.EFA = shim, shim
				doing, undoing := everyVerb(b)
				if !destroys || errno == syscall.EBUSY { // else the library keeps the objects that it could not destroy
					b.check(b.lib.Close())
					noMoreThan(t, before)
				}
				err := doing
				if destroys {
					if doing != nil {
						t.Errorf("before the unmaking: %v", doing)
					}
					if len(undoing) == 0 {
						t.Fatal("nobody heard of it")
					}
					err = undoing[0]
				} else if len(undoing) != 0 {
					t.Errorf("the unmaking: %v", undoing)
				}
				if verb == "ibv_poll_cq" { // its manual knows a negative number only
					errno = syscall.EIO
				}
				var e *Error
				if !errors.As(err, &e) || e.Verb != verb || e.Errno != errno || !errors.Is(err, errno) {
					t.Fatalf("got %v, want %v of %s", err, errno, verb)
				}
				if want := device(); verb != "ibv_get_device_list" && e.Device != want {
					t.Errorf("the device is %q in %v", e.Device, err)
				}
			})
		}
	}
}

// The event arrives and every object closes. When the device is back, it opens again.
func TestEveryVerbOfARemovedDeviceReturnsErrDeviceGone(t *testing.T) {
	control := must(ibvtest.NewControl(t.TempDir() + "/control"))(t)
	defer control.Close()
	b := newLibrary(t, newWire(t), softLibs(t).Shim, "CONTROL", control.Path())
	open := func() (ctx *Context, err error) {
		err = b.wire.Near.NS.Do(func() (err error) { ctx, err = b.lib.Open(device()); return err })
		return ctx, err
	}
	ctx := must(open())(t)
	next := func(want EventType) AsyncEvent {
		t.Helper()
		soon, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		e, err := ctx.NextEvent(soon)
		b.check(err)
		if e.Type != want {
			t.Fatalf("event %v, want %v", e.Type, want)
		}
		return e
	}
	b.check(control.PortDown(device()))
	if e := next(EventPortErr); e.Port != 1 {
		t.Errorf("of port %d", e.Port)
	}
	b.check(control.PortUp(device()))
	next(EventPortActive)

	pd := must(ctx.AllocPD())(t)
	cq := must(ctx.CreateCQ(CQOptions{}))(t)
	qp := must(pd.CreateQP(QPOptions{Type: QPTRawPacket, SendCQ: cq, RecvCQ: cq, Cap: smallCap}))(t)
	n := must(ctx.CreateCounters())(t)
	for _, a := range both {
		b.check(n.Attach(a))
	}
	f := must(qp.CreateFlow(FlowAttr{Port: 1, Flags: FlowDontTrap, Specs: []Spec{b.toUs(), CountSpec{Counters: n}}}))(t)
	k := must(ctx.CreateCompCntr(CompCntrOptions{}))(t)
	ud := must(pd.CreateQP(QPOptions{Type: QPTUD, SendCQ: cq, RecvCQ: cq, Cap: smallCap}))(t)
	b.check(ud.AttachCompCntr(k, QPAttachCompCntrOpSend))
	ah := must(pd.CreateAH(AHAttr{GRH: GlobalRoute{HopLimit: 1}, IsGlobal: true, PortNum: 1}))(t)
	m := must(pd.AllocMR(4096, everyAccess))(t)
	b.check(control.Remove(device()))
	next(EventDeviceFatal)
	if _, err := k.Read(); err != nil { // it is memory, which the device does not write any more
		t.Errorf("a completion counter after the end: %v", err)
	}
	if err := n.Read(make([]uint64, 2), 0); !errors.Is(err, ErrDeviceGone) || !errors.Is(err, syscall.EIO) {
		t.Errorf("reading after the end: %v", err)
	}
	if _, err := open(); !errors.Is(err, ErrNoDevice) {
		t.Errorf("opening what was removed: %v", err)
	}
	// The library keeps objects that it cannot destroy. This package does not, and closing the
	// context frees them.
	for _, o := range []interface{ Close() error }{f, n, qp, ud, k, ah, m, cq, pd} {
		if err := o.Close(); err != nil && !errors.Is(err, ErrDeviceGone) {
			t.Errorf("closing after the end: %v", err)
		}
	}
	b.check(ctx.Close())
	b.check(control.Return(device()))
	deadline := time.Now().Add(20 * time.Second)
	for {
		again, err := open()
		if err == nil {
			b.check(again.Close())
			break
		}
		if !errors.Is(err, ErrNoDevice) || time.Now().After(deadline) {
			t.Fatalf("opening what came back: %v", err)
		}
		time.Sleep(time.Millisecond)
	}
}
