package queuepair

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/poll"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/ibv/flexio"
	"github.com/flowtally/flowtally/probe"
	"github.com/flowtally/flowtally/shm"
)

// A wr_id, a counterIndex and an attachment rely on this order.
func TestOperationsHaveTheOrderOfTheVerbsMask(t *testing.T) {
	want := map[dataplane.Operation]ibv.CompCntrOps{
		dataplane.Send: ibv.QPAttachCompCntrOpSend, dataplane.Recv: ibv.QPAttachCompCntrOpRecv,
		dataplane.RDMARead: ibv.QPAttachCompCntrOpRDMARead, dataplane.RemoteRDMARead: ibv.QPAttachCompCntrOpRemoteRDMARead,
		dataplane.RDMAWrite: ibv.QPAttachCompCntrOpRDMAWrite, dataplane.RemoteRDMAWrite: ibv.QPAttachCompCntrOpRemoteRDMAWrite,
	}
	if len(want) != operations || len(dataplane.Operations()) != operations {
		t.Fatalf("%d operations, want %d", len(dataplane.Operations()), operations)
	}
	for op, bit := range want {
		if got := opsOf(dataplane.CompletionCounter{Operations: []dataplane.Operation{op}}); got != bit {
			t.Errorf("%s is %v, want %v", op, got, bit)
		}
	}
	for kind, op := range map[int]dataplane.Operation{opSend: dataplane.Send, opRecv: dataplane.Recv, opRDMARead: dataplane.RDMARead, opRDMAWrite: dataplane.RDMAWrite} {
		if dataplane.Operations()[kind] != op {
			t.Errorf("kind %d is %s, want %s", kind, dataplane.Operations()[kind], op)
		}
		if id := wrID(1<<40+7, kind); opOf(id) != kind || batchOf(id) != 1<<40+7 {
			t.Errorf("wr_id %#x is of kind %d and batch %d", id, opOf(id), batchOf(id))
		}
	}
}

func TestRingOperationKnowsEveryOpcode(t *testing.T) {
	for _, c := range []struct {
		op   flexio.Opcode
		wqe  uint8
		want int
		ok   bool
	}{
		{flexio.OpReq, wqeSend, opSend, true}, {flexio.OpReq, wqeSendImm, opSend, true},
		{flexio.OpReq, wqeRDMAWrite, opRDMAWrite, true}, {flexio.OpReq, wqeRDMAWriteImm, opRDMAWrite, true},
		{flexio.OpReq, wqeRDMARead, opRDMARead, true}, {flexio.OpReqErr, wqeRDMARead, opRDMARead, false},
		{flexio.OpReqErr, wqeSend, opSend, false}, {flexio.OpReqErr, wqeRDMAWrite, opRDMAWrite, false},
		{flexio.OpRespSend, 0, opRecv, true}, {flexio.OpRespImm, 0, opRecv, true}, {flexio.OpRespInv, 0, opRecv, true},
		{flexio.OpRespWrImm, 0, opRecv, true}, {flexio.OpRespErr, wqeSend, opRecv, false},
		{flexio.OpReq, 0x12, -1, false}, {flexio.OpResize, 0, -1, false}, {flexio.OpNoPacket, 0, -1, false}, {flexio.OpSigErr, 0, -1, false},
	} {
		op, ok := ringOperation(&flexio.CQE64{OpOwn: flexio.OpOwn(c.op << 4), SopRdrop: c.wqe})
		if op != c.want || op >= 0 && ok != c.ok {
			t.Errorf("%v with WQE opcode %#x: %d, %v, want %d, %v", c.op, c.wqe, op, ok, c.want, c.ok)
		}
	}
}

func TestDistancesAddUpAcrossWraps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.OneOf(rapid.Uint64Range(2, 1000), rapid.Just(^uint64(0)), rapid.Uint64()).Filter(func(n uint64) bool { return n > 1 }).Draw(t, "limit")
		shows := rapid.Uint64Range(0, limit).Draw(t, "shows")
		var counted, total uint64
		for range rapid.IntRange(1, 20).Draw(t, "reads") {
			step := rapid.Uint64Range(0, limit).Draw(t, "step")
			before := shows
			if room := limit - shows; step > room {
				shows = step - room - 1
			} else {
				shows += step
			}
			counted += step
			total += distance(before, shows, limit)
		}
		if total != counted {
			t.Fatalf("%d were counted, the steps add up to %d", counted, total)
		}
	})
}

// brokenCounter is a completion counter of a device that is lost during the test.
type brokenCounter struct {
	value, errors uint64
	err           error
}

func (c *brokenCounter) Read() (uint64, error)    { return c.value, c.err }
func (c *brokenCounter) ReadErr() (uint64, error) { return c.errors, c.err }
func (*brokenCounter) Close() error               { return nil }

// The total also keeps the earlier values of the failed counter, which may be ahead of the polled completions.
func TestPolledCompletionsCountIfTheDeviceCounterFails(t *testing.T) {
	index := counterIndex{opSend: 0, opRecv: 1, 2: -1, 3: -1, 4: -1, 5: -1}
	sends, recvs := &brokenCounter{}, &brokenCounter{}
	c := &deviceCounters{cntrs: []compCntr{{deviceCounter: sends}, {deviceCounter: recvs}}, limit: 1 << 40, polled: []backend.Pair{ended(7, 0), {}}, index: &index}
	totals := []backend.Pair{ended(7, 0), {}}
	count := func(at int64, last, fresh bool, failed error, done ...ibv.WC) {
		t.Helper()
		got, err := c.count(done, totals, at, last)
		if got != fresh || !errors.Is(err, failed) {
			t.Errorf("at %d: fresh: %v, %v", at, got, err)
		}
	}
	ms := int64(time.Millisecond)
	good, bad := ibv.WC{WRID: wrID(1, opSend)}, ibv.WC{WRID: wrID(1, opSend), Status: ibv.WCWRFlushErr}
	sends.value, recvs.value = 2, 9 // a counter may be ahead of the completions
	count(1, false, true, nil, good)
	sends.value, sends.errors = 4, 1
	count(1+ms/2, false, false, nil, good, good, bad)
	if want := []backend.Pair{ended(9, 0), ended(9, 0)}; !slices.Equal(totals, want) {
		t.Errorf("between two reads: %+v, want %+v", totals, want)
	}
	sends.err = syscall.EIO
	count(1+ms, false, false, syscall.EIO, good)
	if want := []backend.Pair{ended(11, 1), ended(9, 0)}; !slices.Equal(totals, want) {
		t.Errorf("after the last read: %+v, want %+v", totals, want)
	}
}

// The device's counter was ahead of ibv_poll_cq when it failed, so the total must wait until the polled completions
// catch up.
func TestFallbackCountsNoCompletionTwice(t *testing.T) {
	index := counterIndex{opSend: 0, 1: -1, 2: -1, 3: -1, 4: -1, 5: -1}
	k := &brokenCounter{value: 5}
	polled, totals := []backend.Pair{{}}, []backend.Pair{{}}
	c := &deviceCounters{cntrs: []compCntr{{deviceCounter: k}}, limit: 1 << 40, polled: polled, index: &index}
	sent := ibv.WC{WRID: wrID(1, opSend)}
	if fresh, err := c.count([]ibv.WC{sent}, totals, 1, false); !fresh || err != nil {
		t.Fatal(fresh, err)
	}
	k.err = syscall.EIO
	if _, err := c.count([]ibv.WC{sent}, totals, 1+int64(backend.ReadPeriodMin), false); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	fallback := fallbackSource{&index, polled}
	for taken, want := range []uint64{5, 5, 5, 5, 6} { // beside the two before
		if totals[0] != ended(want, 0) {
			t.Errorf("%d taken off: %+v, want %d", taken+2, totals[0], want)
		}
		if _, err := fallback.count([]ibv.WC{sent}, totals, 0, false); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLaggingDeviceCounterFailsAfterItsBound(t *testing.T) {
	index := counterIndex{opSend: 0, 1: -1, 2: -1, 3: -1, 4: -1, 5: -1}
	k := &brokenCounter{}
	totals := []backend.Pair{{}}
	c := &deviceCounters{cntrs: []compCntr{{deviceCounter: k}}, limit: 1 << 40, polled: []backend.Pair{{}}, index: &index}
	good, bad := ibv.WC{WRID: wrID(1, opSend)}, ibv.WC{WRID: wrID(1, opSend), Status: ibv.WCWRFlushErr}
	const base = 1000
	for _, step := range []struct {
		at              int64
		done            []ibv.WC
		counted, failed uint64
		want            backend.Pair
		found           bool
	}{
		{base, []ibv.WC{good, good}, 1, 0, ended(1, 0), false},
		{base + lagBound - 1, nil, 1, 0, ended(1, 0), false},
		{base + lagBound, nil, 2, 0, ended(2, 0), false}, // it was late
		{base + 2*lagBound, []ibv.WC{bad}, 2, 0, ended(2, 0), false},
		{base + 3*lagBound - 1, nil, 2, 0, ended(2, 0), false},
		{base + 3*lagBound, nil, 2, 0, ended(2, 1), true},
	} {
		k.value, k.errors = step.counted, step.failed
		c.nextRead = 0
		_, err := c.count(step.done, totals, step.at, false)
		if (err != nil) != step.found || totals[0] != step.want {
			t.Errorf("at %d: %+v, %v; want %+v, found %v", step.at, totals[0], err, step.want, step.found)
		}
	}
}

// The total must include the polled completion all the same.
func TestRingWithoutAPolledEntryFails(t *testing.T) {
	ring, err := flexio.NewRing(make([]byte, 4096), flexio.RingOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ring.Init()
	index := counterIndex{opSend: 0, 1: -1, 2: -1, 3: -1, 4: -1, 5: -1}
	c, totals := &ringSource{ring: ring, index: &index, polled: []backend.Pair{{}}}, []backend.Pair{{}}
	if fresh, err := c.count(nil, totals, 0, false); !fresh || err != nil {
		t.Fatal(fresh, err)
	}
	if _, err := c.count([]ibv.WC{{WRID: wrID(1, opSend)}}, totals, 0, false); err == nil || totals[0] != ended(1, 0) {
		t.Errorf("one was taken off that the ring does not have: %+v, %v", totals[0], err)
	}
}

// Each sample comes with its time.
func TestSamplesOfQueuePairsAreReadWithoutAllocating(t *testing.T) {
	s := New(Options{Logger: slog.New(slog.DiscardHandler), Config: dataplane.Config{QueuePairs: []dataplane.QueuePair{
		{Name: "a", Counters: []dataplane.CompletionCounter{{Name: "x", Operations: []dataplane.Operation{dataplane.Send}}}},
		{Name: "b", Counters: []dataplane.CompletionCounter{
			{Name: "y", Operations: []dataplane.Operation{dataplane.Recv}}, {Name: "z", Operations: []dataplane.Operation{dataplane.RDMARead, dataplane.RDMAWrite}}}},
	}}})
	done := []ibv.WC{
		{WRID: wrID(3, opRDMARead)}, {WRID: wrID(3, opRDMAWrite)}, {WRID: wrID(0, opRecv)},
		{WRID: wrID(3, opRDMAWrite), Status: ibv.WCRetryExcErr}, {WRID: wrID(0, opSend)},
	}
	b := s.all[1]
	if fresh, err := (pollSource{&b.index}).count(done, b.worker.totals, 5, false); !fresh || err != nil {
		t.Fatal(fresh, err)
	}
	for i, k := range b.counters {
		k.last.Store(b.worker.totals[i], 5)
	}
	p := poll.NewPlan(0)
	p.AddSegment(shm.Handle{}, false)
	for id, k := range s.byID {
		k.handle = shm.Handle{Index: uint32(id), Generation: 1}
		p.SetSource(k.handle, s, uint32(id), ended(uint64(id)*100, 0))
	}
	w := &published{}
	if err := p.Cycle(w, 100); err != nil {
		t.Fatal(err)
	}
	for i, want := range []shm.Value{{}, {Packets: 101, SampledAt: 5}, {Packets: 202, Bytes: 1, SampledAt: 5}} {
		if w.rows[i] != want {
			t.Errorf("counter %d shows %+v, want %+v", i, w.rows[i], want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { p.Cycle(w, 100) }); n != 0 {
		t.Errorf("%v allocations a cycle", n)
	}
}

// TestRejectionsShowEveryReason: the reason is the text of an UnsupportedError without the errors around it. Where
// it is one of several joined errors, the reason shows the others too.
func TestRejectionsShowEveryReason(t *testing.T) {
	no := &probe.UnsupportedError{Feature: "DevX", Object: "mlx5_0", Reason: "the device is not one of mlx5"}
	verbs := func(errno error) error { return fmt.Errorf("mlx5_0: calling ibv_create_qp: %w", errno) }
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"not supported", fmt.Errorf("opening mlx5_0 of eth0: %w", no), no.Error()},
		{"not supported, and no privilege for verbs", fmt.Errorf("mlx5_0 cannot count: %w", errors.Join(verbs(syscall.EPERM), no)),
			"mlx5_0 cannot count: mlx5_0: calling ibv_create_qp: operation not permitted; " + no.Error()},
		{"of two devices", errors.Join(no, verbs(syscall.EINVAL)), no.Error() + "; mlx5_0: calling ibv_create_qp: invalid argument"},
		{"neither", verbs(syscall.EIO), "mlx5_0: calling ibv_create_qp: input/output error"},
	} {
		e := &endpoint{}
		e.reject("cq_ring", fmt.Errorf("making it: %w", tt.err))
		if len(e.rejected) != 1 || !strings.Contains(e.rejected[0].Reason, tt.want) {
			t.Errorf("%s: %+v, want %q", tt.name, e.rejected, tt.want)
		}
	}
}

// published records the block published by a cycle.
type published struct{ rows shm.Block }

func (p *published) BeginCycle() uint64                  { return 1 }
func (p *published) PublishBlock(_ int, v *shm.Block)    { p.rows = *v }
func (p *published) PublishRecord(uint32, shm.Value)     {}
func (p *published) AppendHistory(shm.Handle, shm.Value) {}
func (p *published) EndCycle(int64)                      {}

// ended returns the total of a completion counter.
func ended(completions, errors uint64) backend.Pair {
	return backend.Pair{Packets: completions, Bytes: errors}
}
