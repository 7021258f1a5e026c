//go:build releases && cgo

package ibv

import (
	"runtime"
	"testing"
	"time"

	"github.com/flowtally/flowtally/ibv/flexio"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab/rdmacore"
)

// countVariant is a kind of completion queue.
type countVariant struct {
	name        string
	size        int
	compression MLX5Compression
	format      flexio.CQECompFormat
	operations  uint64 // at least
}

// Each form has at least 100,000 operations once: without compression and with it.
var countVariants = []countVariant{
	{"entries of 64 bytes", 64, 0, 0, 100_000},
	{"entries of 128 bytes", 128, 0, 0, 10_000},
	{"compressed, hash", 64, MLX5CompressHash, flexio.MiniHash, 100_000},
	{"compressed, checksum", 64, MLX5CompressCsum, flexio.MiniCsum, 10_000},
	{"compressed, checksum and stride", 128, MLX5CompressCsumStrIdx, flexio.MiniCsumStrIdx, 10_000},
}

// tally counts the completions of one source, by kind: successes and failures.
type tally struct{ Send, Recv, Write, Read, Failed uint64 }

func (c *tally) add(op string, ok bool) {
	switch {
	case !ok:
		c.Failed++
	case op == "send":
		c.Send++
	case op == "recv":
		c.Recv++
	case op == "write":
		c.Write++
	case op == "read":
		c.Read++
	}
}

// RC operations are posted over the real libmlx5, with and without compression. The entries read by package flexio, the
// completions of ibv_poll_cq and the posted operations must agree.
func TestKernelMLX5RingEqualsThePostedOperations(t *testing.T) {
	overKernel(t, ibvtest.Env{}, rdmacore.Suites(), func(t *testing.T) {
		b := newRealData(t, 16)
		for _, v := range countVariants {
			c := newCounting(b, v)
			for c.posted < v.operations {
				c.round()
			}
			c.fail()
			if c.ring != c.polled || c.ring != c.want {
				t.Errorf("%s: the ring has %+v, ibv_poll_cq %+v, posted were %+v", v.name, c.ring, c.polled, c.want)
			}
			if (c.blocks > 0) != (v.compression != 0) {
				t.Errorf("%s: %d titles of compressed blocks", v.name, c.blocks)
			}
			t.Logf("%s: posted %d: ring %+v == ibv_poll_cq %+v; %d compressed blocks, %d messages in entries",
				v.name, c.posted, c.ring, c.polled, c.blocks, c.inlined)
			c.close()
		}
	})
}

// counting is two connected queue pairs with one completion queue, counted three times.
type counting struct {
	*bench
	v            countVariant
	cq           *CQ
	x, y         *QP
	m            *MR
	raw          MLX5CQ
	walk         *flexio.Ring
	n            int // round
	posted       uint64
	want         tally
	ring, polled tally
	blocks       uint64
	inlined      uint64
}

func newCounting(b *bench, v countVariant) *counting {
	b.t.Helper()
	c := &counting{bench: b, v: v}
	c.cq = must(b.ctx.CreateMLX5CQ(MLX5CQOptions{CQOptions: CQOptions{CQE: 256}, EntrySize: v.size, Compression: v.compression}))(b.t)
	c.raw = must(c.cq.MLX5Ring())(b.t)
	o := flexio.RingOptions{EntrySize: c.raw.CQESize, Format: v.format, Expand: true}
	if v.compression != 0 {
		o.Compression = flexio.Basic
	}
	if c.raw.CQESize != v.size {
		b.t.Fatalf("%s: entries of %d bytes", v.name, c.raw.CQESize)
	}
	c.walk = must(flexio.NewRing(c.raw.Buf, o))(b.t)
	c.m = must(b.pd.AllocMR(4096, everyAccess))(b.t)
	shared := b.cq
	b.cq = c.cq
	for _, q := range []**QP{&c.x, &c.y} {
		*q = must(b.pd.CreateQP(QPOptions{Type: QPTRC, SendCQ: c.cq, RecvCQ: c.cq, Cap: dataCap}))(b.t)
		b.toInit(*q)
	}
	b.connect(c.x, c.y)
	b.cq = shared
	return c
}

func (c *counting) close() {
	for _, o := range []interface{ Close() error }{c.x, c.y, c.m, c.cq} {
		c.check(o.Close())
	}
}

// round posts operations of each kind. Some are so short that their data is in the entry itself.
func (c *counting) round() {
	c.n++
	length := uint32(1 + c.n*7%200)
	local := SGE{Addr: c.m.Addr(), Length: length, LKey: c.m.LKey()}
	kinds := []SendWR{
		{Opcode: WRSend}, {Opcode: WRRDMAWrite, RemoteAddr: c.m.Addr() + 1024, RKey: c.m.RKey()},
		{Opcode: WRRDMARead, RemoteAddr: c.m.Addr() + 1024, RKey: c.m.RKey()},
		{Opcode: WRSendWithImm, Imm: uint32(c.n)}, {Opcode: WRRDMAWriteWithImm, Imm: 7, RemoteAddr: c.m.Addr() + 1024, RKey: c.m.RKey()},
	}
	wr := kinds[c.n%len(kinds)]
	wr.SGE, wr.Flags, wr.WRID = local, SendSignaled, uint64(c.n)
	if c.n%2 == 0 && wr.Opcode != WRRDMARead && length <= 64 {
		wr.Flags |= SendInline
	}
	count := 1 + c.n%40
	switch wr.Opcode {
	case WRSend, WRSendWithImm, WRRDMAWriteWithImm:
		c.postRecv(c.y, repeat(count, RecvWR{WRID: 1 << 32, SGE: SGE{Addr: c.m.Addr() + 2048, Length: 1024, LKey: c.m.LKey()}})...)
		c.want.Recv += uint64(count)
	}
	c.post(c.x, repeat(count, wr)...)
	c.posted += uint64(count)
	switch wr.Opcode {
	case WRSend, WRSendWithImm:
		c.want.Send += uint64(count)
	case WRRDMARead:
		c.want.Read += uint64(count)
	default:
		c.want.Write += uint64(count)
	}
	c.collect()
}

// collect reads the ring until every operation has completed, and polls each entry after that.
func (c *counting) collect() {
	c.t.Helper()
	var e flexio.CQE64
	var wc [1]WC
	deadline := time.Now().Add(20 * time.Second)
	for c.ring.sum() < c.want.sum() {
		next := c.raw.Buf[int(c.walk.Consumed())%c.raw.CQECount*c.raw.CQESize+c.raw.CQESize-64:][:64]
		title := next[63]>>2&3 == byte(flexio.Compressed)
		found, err := c.walk.Next(&e)
		c.check(err)
		if !found {
			if time.Now().After(deadline) {
				c.t.Fatalf("%s: after 20 s the ring has %+v, posted were %+v; entry %d is % x", c.v.name, c.ring, c.want, c.walk.Consumed(), next)
			}
			runtime.Gosched()
			continue
		}
		op := ringOp(&e)
		c.ring.add(op, e.Err() == nil)
		if title && c.v.compression != 0 {
			c.blocks++
		}
		if f := e.OpOwn.Format(); f == flexio.Inline32 || f == flexio.Inline64 {
			c.inlined++
		}
		if n, err := c.cq.Poll(wc[:]); err != nil || n != 1 {
			c.t.Fatalf("%s: ibv_poll_cq took %d of an entry that is in the ring: %v", c.v.name, n, err)
		}
		c.polled.add(polledOp(wc[0]), wc[0].Status == WCSuccess)
		if wc[0].Status == WCSuccess && (op == "recv") != (wc[0].WRID == 1<<32) || e.QPN() != wc[0].QPNum {
			c.t.Fatalf("%s: the entry %+v is the completion %+v", c.v.name, e, wc[0])
		}
	}
}

func (t *tally) sum() uint64 { return t.Send + t.Recv + t.Write + t.Read + t.Failed }

func ringOp(e *flexio.CQE64) string {
	switch e.OpOwn.Opcode() {
	case flexio.OpRespSend, flexio.OpRespImm, flexio.OpRespWrImm, flexio.OpRespErr:
		return "recv"
	}
	return map[uint8]string{0x0a: "send", 0x0b: "send", 0x08: "write", 0x09: "write", 0x10: "read"}[e.SopRdrop]
}

func polledOp(wc WC) string {
	return map[WCOpcode]string{WCSend: "send", WCRDMAWrite: "write", WCRDMARead: "read", WCRecv: "recv", WCRecvRDMAWithImm: "recv"}[wc.Opcode]
}

// fail ends both queue pairs: a write that its peer does not allow, requests that are flushed behind it, and
// receives that are flushed at the peer.
func (c *counting) fail() {
	c.postRecv(c.y, repeat(20, recv(c.m))...)
	bad := write(c.m)
	bad.RKey ^= 0x10000
	c.post(c.x, append([]SendWR{bad}, repeat(10, send(c.m))...)...)
	c.posted += 11
	c.want.Failed += 31
	c.collect()
	// Destroying the queue pair waits until its events were read.
	if ev := must(c.ctx.NextEvent(c.t.Context()))(c.t); ev.Type != EventQPAccessErr || ev.QP != c.y {
		c.t.Errorf("%s: the event %v", c.v.name, ev)
	}
}
