//go:build cgo

package ibv

import (
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
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

// Options.Calls must see each call once, with the name of the device.
func TestEveryVerbIsNamed(t *testing.T) {
	b := newLibrary(t, newWire(t), "")
	r := &recorder{verbs: make(map[string]uint64), devices: make(map[string]bool)}
	lib := must(Load(Options{Calls: r}))(t)
	b.closes(lib)
	var ctx *Context
	b.check(b.wire.Near.NS.Do(func() (err error) {
		if _, err = lib.Devices(); err != nil {
			return err
		}
		ctx, err = lib.Open(device())
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
	const reads = 1 + 101 // AllocsPerRun calls once more
	want := map[string]uint64{
		"dlopen of libibverbs": 1, "dlopen of libmlx5": 2, "mlx5dv_is_supported": 2, // for the ring and for DevX
		"ibv_get_device_list": 1, "ibv_open_device": 1, "ibv_close_device": 2, // DevX has a context of its own
		"ibv_query_device": 1, "ibv_query_port": 1, "ibv_query_gid": 1,
		"ibv_alloc_pd": 1, "ibv_dealloc_pd": 1, "ibv_reg_mr": 1, "ibv_dereg_mr": 1, "ibv_create_cq": 1, "ibv_destroy_cq": 1, "ibv_poll_cq": reads,
		"mlx5dv_init_obj": 1, "ibv_create_qp": 1, "ibv_modify_qp": 1, "ibv_query_qp": 1, "ibv_destroy_qp": 1,
		"ibv_create_counters": 1, "ibv_attach_counters_point_flow": 1, "ibv_read_counters": reads, "ibv_destroy_counters": 1,
		"ibv_create_flow": 1, "ibv_destroy_flow": 2, // of both kinds
		"mlx5dv_open_device": 1, "mlx5dv_devx_general_cmd": 2, "mlx5dv_devx_obj_create": 1, "mlx5dv_devx_obj_query": reads, "mlx5dv_devx_obj_destroy": 1,
		"mlx5dv_create_flow_matcher": 1, "mlx5dv_create_flow": 1, "mlx5dv_destroy_flow_matcher": 1,
	}
	if diff := cmp.Diff(want, r.verbs); diff != "" {
		t.Errorf("called and named (-called +named):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]bool{"": true, device(): true}, r.devices); diff != "" || r.open != 0 {
		t.Errorf("%d calls did not end; devices (-want +got):\n%s", r.open, diff)
	}
}
