//go:build cgo

package ibv

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/frame"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/soft"
)

func TestMain(m *testing.M) {
	if !inRoot() { // there the kernel is in front of the release's libraries already
		uverbs.Preload()
	}
	code := m.Run()
	if err := errors.Join(uverbs.Close(), software.Close()); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// uverbs is below the libraries of the host.
var uverbs soft.Kernel

var software soft.Libraries

// insideEnv is set where this test binary runs in the root of a release. Its value is the release's
// version.
const insideEnv = "FLOWTALLY_RDMA_RELEASE"

// inRoot reports whether the tests run in the root of a release, over its libraries.
func inRoot() bool { return os.Getenv(insideEnv) != "" }

// servedEnv is set in a process over the uverbs kernel of uverbsd: its devices have the netdevs v0 and v1 of any namespace, and its
// environment is not the process's.
const servedEnv = "FLOWTALLY_SERVED"

// softLibs is what is built for the tests, once per run: the shim in front of the libraries of the host. In the root of a
// release it names the release's own libraries, which have the shim's verbs or lack them.
func softLibs(t *testing.T) ibvtest.Libs {
	t.Helper()
	if inRoot() {
		return ibvtest.Libs{}
	}
	uverbs.Need(t)
	return software.Get(t)
}

// device is the name of the device in the tests.
func device() string { return "mlx5_0" }

// bench is a wire whose near end is the device, open, with a queue pair.
type bench struct {
	t    *testing.T
	wire *lab.Wire
	lib  *Library
	ctx  *Context
	pd   *PD
	cq   *CQ
	qp   *QP // RAW_PACKET, in RTS

	abandons bool // the test abandons an object, so closing others may fail

	reliable QPType      // of its reliable queue pairs; 0: RC
	ah       *AH         // of the device itself, for SRD
	peers    map[*QP]*QP // of SRD
}

// newBench sets the environment that the kernel reads (pairs of name and value, without
// FLOWTALLY_IBVTEST_) and makes all objects up to the queue pair. They are closed in order at the
// end of the test, and no object may be left.
func newBench(t *testing.T, wire *lab.Wire, env ...string) *bench {
	t.Helper()
	return newBenchOver(t, wire, "", env...)
}

// newBenchOver is newBench over a library, "": the one that the loader finds.
func newBenchOver(t *testing.T, wire *lab.Wire, library string, env ...string) *bench {
	t.Helper()
	b := newLibrary(t, wire, library, env...)
	b.open()
	b.pd = must(b.ctx.AllocPD())(t)
	b.closes(b.pd)
	b.cq = must(b.ctx.CreateCQ(CQOptions{}))(t)
	b.closes(b.cq)
	b.qp = must(b.pd.CreateQP(QPOptions{Type: QPTRawPacket, SendCQ: b.cq, RecvCQ: b.cq, Cap: smallCap}))(t)
	b.closes(b.qp)
	b.check(b.qp.Modify(QPAttr{State: QPSInit, PortNum: 1}, QPAttrState|QPAttrPort))
	b.check(b.qp.Modify(QPAttr{State: QPSRTR}, QPAttrState))
	b.check(b.qp.Modify(QPAttr{State: QPSRTS}, QPAttrState))
	return b
}

var smallCap = QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}

// kernelNames are the methods and commands of the kernel that verbs call, as FAIL and DELAY name them. Verbs without one
// fail in the shim, by their own names.
var kernelNames = strings.NewReplacer(
	"ibv_open_device=", "GET_CONTEXT=", "ibv_query_device=", "QUERY_DEVICE=", "ibv_query_port=", "QUERY_PORT=", "ibv_query_gid=", "QUERY_GID_ENTRY=",
	"ibv_alloc_pd=", "ALLOC_PD=", "ibv_dealloc_pd=", "PD_DESTROY=", "ibv_reg_mr=", "REG_MR=", "ibv_dereg_mr=", "MR_DESTROY=",
	"ibv_create_ah=", "CREATE_AH=", "ibv_destroy_ah=", "AH_DESTROY=", "ibv_create_cq=", "CQ_CREATE=", "ibv_destroy_cq=", "CQ_DESTROY=",
	"ibv_create_qp=", "QP_CREATE=", "ibv_modify_qp=", "MODIFY_QP=", "ibv_query_qp=", "QUERY_QP=", "ibv_destroy_qp=", "QP_DESTROY=",
	"ibv_create_counters=", "COUNTERS_CREATE=", "ibv_destroy_counters=", "COUNTERS_DESTROY=", "ibv_read_counters=", "COUNTERS_READ=",
	"ibv_create_flow=", "EX_CREATE_FLOW=", "ibv_destroy_flow=", "FLOW_DESTROY=",
	"mlx5dv_open_device=", "GET_CONTEXT=", "mlx5dv_devx_obj_create=", "DEVX_OBJ_CREATE=", "mlx5dv_devx_obj_query=", "DEVX_OBJ_QUERY=",
	"mlx5dv_devx_obj_destroy=", "DEVX_OBJ_DESTROY=", "mlx5dv_create_flow_matcher=", "FLOW_MATCHER_CREATE=",
	"mlx5dv_destroy_flow_matcher=", "FLOW_MATCHER_DESTROY=", "mlx5dv_create_flow=", "CREATE_FLOW=",
	"mlx5dv_devx_create_cmd_comp=", "DEVX_ASYNC_CMD_FD_ALLOC=", "mlx5dv_devx_obj_query_async=", "DEVX_OBJ_ASYNC_QUERY=",
)

// newWire makes a wire for the test and those below it.
func newWire(t *testing.T) *lab.Wire {
	t.Helper()
	need.Cap(t, "net_admin", "sys_admin", "net_raw")
	need.Netns(t)
	var o lab.WireOptions
	if os.Getenv(servedEnv) != "" {
		o.Near = "v0"
	}
	wire, err := lab.NewWire(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { wire.Close() })
	return wire
}

// newLibrary sets the environment and loads the library, "": the one that the loader finds.
func newLibrary(t *testing.T, wire *lab.Wire, library string, env ...string) *bench {
	t.Helper()
	if !inRoot() {
		uverbs.Need(t)
	}
	for _, v := range []string{"FAIL", "DELAY", "WITHOUT", "CONTROL", "STATISTICS", "COMP_CNTR_MAX", "COMP_CNTR_OPS"} {
		t.Setenv("FLOWTALLY_IBVTEST_"+v, "")
	}
	t.Setenv("FLOWTALLY_IBVTEST_DEVICES", device()+"="+wire.Near.Name+",efa_0="+wire.Near.Name)
	for i := 0; i < len(env); i += 2 {
		t.Setenv("FLOWTALLY_IBVTEST_"+env[i], kernelNames.Replace(env[i+1]))
	}
	b := &bench{t: t, wire: wire}
	b.lib = must(Load(Options{Library: library}))(t)
	b.closes(b.lib)
	return b
}

// open opens the device, on a thread in its namespace. A bench without a wire is in a root.
func (b *bench) open() {
	b.t.Helper()
	if b.wire == nil {
		b.ctx = must(b.lib.Open("efa_0"))(b.t)
		b.closes(b.ctx)
		return
	}
	b.openDevice(device())
}

// openDevice opens a device of the wire.
func (b *bench) openDevice(name string) {
	b.t.Helper()
	b.check(b.wire.Near.NS.Do(func() (err error) {
		b.ctx, err = b.lib.Open(name)
		return err
	}))
	b.closes(b.ctx)
}

func (b *bench) check(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// closes closes o at the end of the test, when no object may hold it any more.
func (b *bench) closes(o interface{ Close() error }) {
	b.t.Cleanup(func() {
		if err := o.Close(); err != nil && !b.abandons {
			b.t.Errorf("closing at the end: %v", err)
		}
	})
}

// must(f())(t) is f's value, or the end of the test.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// counters makes an object with these attach points.
func (b *bench) counters(points ...CounterAttach) *Counters {
	b.t.Helper()
	n := must(b.ctx.CreateCounters())(b.t)
	b.closes(n)
	for _, p := range points {
		b.check(n.Attach(p))
	}
	return n
}

// both is the usual pair.
var both = []CounterAttach{{CounterPackets, 0}, {CounterBytes, 1}}

// flow makes a NORMAL|DONT_TRAP flow that counts into n.
func (b *bench) flow(n *Counters, specs ...Spec) *Flow {
	b.t.Helper()
	return b.flowAttr(FlowAttr{Flags: FlowDontTrap, Specs: append(specs, CountSpec{Counters: n})})
}

func (b *bench) flowAttr(a FlowAttr) *Flow {
	b.t.Helper()
	a.Port = 1
	f := must(b.qp.CreateFlow(a))(b.t)
	b.closes(f)
	return f
}

// send puts n frames on the wire, towards the device, and waits until the kernel has passed every
// frame on.
func (b *bench) send(frame []byte, n uint64) {
	b.t.Helper()
	b.sendFrom(b.wire.Far, frame, n)
}

func (b *bench) sendFrom(end *lab.End, frame []byte, n uint64) {
	b.t.Helper()
	s := must(end.NewSender([]lab.Stream{{Name: b.t.Name(), Frames: [][]byte{frame}}}, lab.SenderOptions{Stack: end == b.wire.Near}))(b.t)
	defer s.Close()
	b.check(s.Run(b.t.Context(), n))
	b.check(s.Drain(b.t.Context()))
	if got := s.Sent()[0].Packets; got != n {
		b.t.Fatalf("sent %d frames of %d", got, n)
	}
}

// read is the first values of n.
func (b *bench) read(n *Counters, values int) []uint64 {
	b.t.Helper()
	v := make([]uint64, values)
	b.check(n.Read(v, 0))
	return v
}

func (b *bench) wants(n *Counters, want ...uint64) {
	b.t.Helper()
	got := b.read(n, len(want))
	for i := range want {
		if got[i] != want[i] {
			b.t.Fatalf("the counters read %d, want %d", got, want)
		}
	}
}

// eth is the Ethernet header of frames to the device.
func (b *bench) eth() frame.Eth {
	return frame.Eth{Dst: [6]byte(b.wire.Near.MAC), Src: [6]byte(b.wire.Far.MAC)}
}

// toUs matches all frames to the device's address, as the example of ibv_read_counters(3).
func (b *bench) toUs() EthSpec {
	s := EthSpec{Mask: EthFilter{DstMAC: [6]byte{255, 255, 255, 255, 255, 255}}}
	copy(s.Val.DstMAC[:], b.wire.Near.MAC)
	return s
}
