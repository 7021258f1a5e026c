//go:build cgo

package ibv

import (
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flowtally/flowtally/ibv/ibvtest"
)

// recorder keeps the names of the calls.
type recorder struct {
	mu      sync.Mutex
	verbs   map[string]uint64
	devices map[string]bool
	open    int
}

func (r *recorder) Begin(device, verb string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.verbs[verb]++
	r.devices[device] = true
	r.open++
	return 7
}

func (r *recorder) End(call int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if call == 7 {
		r.open--
	}
}

// Options.Calls must see exactly the calls recorded by the software library, each with the name of
// the device.
func TestEveryVerbIsNamed(t *testing.T) {
	b := newDevXBench(t)
	before := must(ibvtest.ReadStatistics(b.statistics))(t)
	r := &recorder{verbs: make(map[string]uint64), devices: make(map[string]bool)}
	lib := must(Load(Options{Library: softLibs(t).Verbs, MLX5: softLibs(t).MLX5, Calls: r}))(t)
	b.closes(lib)
	var ctx *Context
	b.check(b.wire.Near.NS.Do(func() (err error) {
		if _, err = lib.Devices(); err != nil {
			return err
		}
		ctx, err = lib.Open("swnic0")
		return err
	}))
	must(ctx.QueryDevice())(t)
	must(ctx.QueryPort(1))(t)
	must(ctx.QueryGID(1, 0))(t)
	pd := must(ctx.AllocPD())(t)
	mr := must(pd.AllocMR(4096, AccessLocalWrite))(t)
	cq := must(ctx.CreateCQ(CQOptions{CQE: 4}))(t)
	must(cq.Poll(make([]WC, 1)))(t)
	must(cq.MLX5Ring())(t)
	qp := must(pd.CreateQP(QPOptions{Type: QPTRawPacket, SendCQ: cq, RecvCQ: cq, Cap: smallCap}))(t)
	b.check(qp.Modify(QPAttr{State: QPSInit, PortNum: 1}, QPAttrState|QPAttrPort))
	must(qp.Query(QPAttrState))(t)
	n := must(ctx.CreateCounters())(t)
	b.check(n.Attach(CounterAttach{CounterPackets, 0}))
	f := must(qp.CreateFlow(FlowAttr{Priority: 1, Port: 1, Specs: []Spec{matchNothing(), CountSpec{Counters: n}}}))(t)
	b.check(n.Read(make([]uint64, 1), 0))
	dx := must(ctx.DevX())(t)
	bulk := must(dx.AllocFlowCounters(4))(t)
	m := must(dx.CreateMatcher(MatcherAttr{Mask: udpPortMask()}))(t)
	rule := must(m.CreateFlow(udpPort(53), FlowActions{Counters: bulk, DefaultMiss: true}))(t)
	b.check(bulk.Query(make([]FlowCount, 4)))
	values, counts, wc := make([]uint64, 1), make([]FlowCount, 4), make([]WC, 1)
	if a := testing.AllocsPerRun(100, func() {
		if n.Read(values, 0) != nil || bulk.Query(counts) != nil {
			t.Error("a read")
		}
		if _, err := cq.Poll(wc); err != nil {
			t.Error(err)
		}
	}); a != 0 {
		t.Errorf("reading with names allocates %v times", a)
	}
	for _, o := range []interface{ Close() error }{rule, m, bulk, dx, f, n, qp, cq, mr, pd, ctx} {
		b.check(o.Close())
	}
	after := must(ibvtest.ReadStatistics(b.statistics))(t)
	called := make(map[string]uint64)
	for verb, n := range after.Sub(before) {
		if n > 0 && strings.ToUpper(verb) != verb { // not a command of firmware, which a verb carries
			called[verb] = n
		}
	}
	for verb := range r.verbs {
		if strings.HasPrefix(verb, "dlopen") || verb == "mlx5dv_is_supported" { // which the library does not count
			delete(r.verbs, verb)
		}
	}
	called["mlx5dv_create_flow"] = called["__mlx5dv_create_flow"] // the symbol with offsets is that verb's
	delete(called, "__mlx5dv_create_flow")
	called["ibv_get_device_list"]-- // the one by which ibv_open_device finds the device
	if diff := cmp.Diff(called, r.verbs); diff != "" {
		t.Errorf("called and named (-called +named):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]bool{"": true, "swnic0": true}, r.devices); diff != "" || r.open != 0 {
		t.Errorf("%d calls did not end; devices (-want +got):\n%s", r.open, diff)
	}
}
