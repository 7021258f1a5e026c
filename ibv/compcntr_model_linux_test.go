//go:build cgo

package ibv

import (
	"errors"
	"slices"
	"syscall"
	"testing"

	"pgregory.net/rapid"
)

// cntrModel is the model of queue pairs and counters from the manuals: which counter counts which
// operation, and both values.
type cntrModel struct {
	attached [][6]int // per queue pair and operation: the counter, or -1
	values   [][2]uint64
	max      uint64
	wraps    int
}

// attach returns the errno of the first check that fails, in the order of libibverbs, which drops operations that do not
// exist, of the kernel, and of the device; 0: attached.
func (m *cntrModel) attach(q, k int, ops, supported CompCntrOps) syscall.Errno {
	if ops &= localOps | remoteOps; ops == 0 {
		return syscall.EINVAL
	}
	for op := range 6 {
		if ops>>op&1 != 0 && m.attached[q][op] >= 0 {
			return syscall.EBUSY
		}
	}
	if ops&^supported != 0 {
		return syscall.ENOTSUP
	}
	for op := range 6 {
		if ops>>op&1 != 0 {
			m.attached[q][op] = k
		}
	}
	return 0
}

// count counts one completion of an operation, given as its bit, at queue pair q.
func (m *cntrModel) count(q int, op CompCntrOps, failed bool) {
	for bit := range 6 {
		if k := m.attached[q][bit]; op>>bit&1 != 0 && k >= 0 {
			word := &m.values[k][wordComp]
			if failed {
				word = &m.values[k][wordErr]
			}
			if *word++; *word > m.max {
				*word = 0
				m.wraps++
			}
		}
	}
}

// holds reports whether an open queue pair has counter k attached.
func (m *cntrModel) holds(k int, open []bool) bool {
	for q, ops := range m.attached {
		if open[q] && slices.Contains(ops[:], k) {
			return true
		}
	}
	return false
}

// Random counters are attached to random queue pairs under random work, with errors and wraps. At
// every step the values equal the model's, and Close succeeds exactly when the model allows it.
func TestCompCntrsEqualTheModel(t *testing.T) {
	const supported = localOps | QPAttachCompCntrOpRemoteRDMAWrite
	const modulus = 4
	b := newData(t, newWire(t), Options{Library: softLibs(t).Shim},
		"COMP_CNTR_MAX", "3", "COMP_CNTR_OPS", "send,recv,rdma_read,rdma_write,remote_rdma_write")
	m := b.region()
	moves, wraps := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		model := &cntrModel{max: modulus - 1}
		counters := make([]*CompCntr, rapid.IntRange(1, 4).Draw(rt, "counters"))
		qps := make([]*QP, 2*rapid.IntRange(1, 2).Draw(rt, "pairs"))
		defer func() {
			for _, q := range qps {
				b.check(q.Close())
			}
			for _, k := range counters {
				b.check(k.Close())
			}
		}()
		for i := range counters {
			counters[i] = must(b.ctx.CreateCompCntr(CompCntrOptions{}))(t)
		}
		for i := range qps {
			qps[i] = must(b.pd.CreateQP(QPOptions{Type: QPTRC, SendCQ: b.cq, RecvCQ: b.cq, Cap: dataCap}))(t)
			b.toInit(qps[i])
			model.attached = append(model.attached, [6]int{-1, -1, -1, -1, -1, -1})
		}
		model.values = make([][2]uint64, len(counters))

		for range rapid.IntRange(0, 12).Draw(rt, "attaches") {
			q, k := rapid.IntRange(0, len(qps)-1).Draw(rt, "q"), rapid.IntRange(0, len(counters)-1).Draw(rt, "k")
			ops := CompCntrOps(rapid.OneOf(rapid.Just(0), rapid.Map(rapid.IntRange(0, 6), func(n int) int { return 1 << n }), rapid.IntRange(0, 63)).Draw(rt, "ops"))
			want, err := model.attach(q, k, ops, supported), qps[q].AttachCompCntr(counters[k], ops)
			if (want == 0) != (err == nil) || want != 0 && !errors.Is(err, want) {
				rt.Fatalf("attaching %v: %v, want %v", ops, err, want)
			}
		}
		for i := 0; i < len(qps); i += 2 {
			b.connect(qps[i], qps[i+1])
		}
		dead := make([]bool, len(qps))
		for range rapid.IntRange(10, 60).Draw(rt, "moves") {
			moves++
			q := rapid.IntRange(0, len(qps)-1).Draw(rt, "q")
			switch what := rapid.SampledFrom([]string{"send", "write", "read", "imm", "set", "bad"}).Draw(rt, "what"); {
			case what == "set":
				k, v := rapid.IntRange(0, len(counters)-1).Draw(rt, "k"), rapid.Uint64Range(0, modulus-1).Draw(rt, "value")
				b.check(counters[k].Set(v))
				model.values[k][wordComp] = v
			case dead[q] || dead[q^1]: // a queue pair in ERR flushes new work, and its peer would not notice
				if dead[q] {
					b.post(qps[q], write(m))
					b.completions(1)
					model.count(q, QPAttachCompCntrOpRDMAWrite, true)
				}
			default:
				dead[q] = b.move(model, qps, q, what, m)
			}
			for k, c := range counters {
				if got := [2]uint64{must(c.Read())(t), must(c.ReadErr())(t)}; got != model.values[k] {
					rt.Fatalf("counter %d reads %d, want %d", k, got, model.values[k])
				}
			}
		}
		wraps += model.wraps
		open := slices.Repeat([]bool{true}, len(qps))
		for _, q := range rapid.Permutation([]int{0, 1, 2, 3}[:len(qps)]).Draw(rt, "closing") {
			for k, c := range counters {
				if holds := model.holds(k, open); holds {
					if err := c.Close(); !errors.Is(err, ErrBusy) {
						rt.Fatalf("closing counter %d, which is attached: %v", k, err)
					}
				}
			}
			b.check(qps[q].Close())
			open[q] = false
		}
		for _, c := range counters {
			b.check(c.Close())
		}
	})
	if moves < 200 { // ten times 20, the runs of -short
		t.Errorf("only %d moves", moves)
	}
	t.Logf("%d moves, %d wraps", moves, wraps)
}

// move does one operation from q to its peer, and reports whether q is in error after it.
func (b *bench) move(model *cntrModel, qps []*QP, q int, what string, m *MR) bool {
	peer := q ^ 1
	switch what {
	case "send":
		b.postRecv(qps[peer], recv(m))
		b.post(qps[q], send(m))
		b.succeed(2)
		model.count(q, QPAttachCompCntrOpSend, false)
		model.count(peer, QPAttachCompCntrOpRecv, false)
	case "write":
		b.post(qps[q], write(m))
		b.succeed(1)
		model.count(q, QPAttachCompCntrOpRDMAWrite, false)
		model.count(peer, QPAttachCompCntrOpRemoteRDMAWrite, false)
	case "read":
		b.post(qps[q], read(m))
		b.succeed(1)
		model.count(q, QPAttachCompCntrOpRDMARead, false)
	case "imm": // a write that the peer also receives
		b.postRecv(qps[peer], recv(m))
		b.post(qps[q], with(write(m), func(w *SendWR) { w.Opcode = WRRDMAWriteWithImm }))
		b.succeed(2)
		model.count(q, QPAttachCompCntrOpRDMAWrite, false)
		model.count(peer, QPAttachCompCntrOpRecv|QPAttachCompCntrOpRemoteRDMAWrite, false)
	case "bad":
		b.post(qps[q], with(read(m), func(w *SendWR) { w.RKey++ }), write(m))
		b.completions(2)
		model.count(q, QPAttachCompCntrOpRDMARead, true)
		model.count(q, QPAttachCompCntrOpRDMAWrite, true)
		return true
	}
	return false
}
