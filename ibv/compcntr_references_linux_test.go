//go:build cgo

package ibv

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/flowtally/flowtally/probe"
)

// Reference 003 is the draft of ibv_qp_attach_comp_cntr(3). The cases attach, create and caps quote
// this page, ibv_create_comp_cntr(3) and ibv_query_comp_cntr_caps(3) as of rdma-core 65 (commit
// 691953d8), with line numbers.
func TestCompCntrsFollowTheirManualPages(t *testing.T) {
	libs, wire := softLibs(t), newWire(t)
	for _, s := range slices.Concat(draftStatements, mergedAttachStatements, mergedCreateStatements, capsStatements) {
		t.Run(s.at, func(t *testing.T) {
			t.Log(s.says)
			s.shows(t, newData(t, wire, Options{Library: libs.Shim}, s.env...))
		})
	}
}

// attachErrno calls the library directly, past the checks and explanations of this package.
func attachErrno(q *QP, k *CompCntr, compMask uint32, ops CompCntrOps) syscall.Errno {
	return q.ctx.lib.v.attachCompCntr(q.h, k.h, compMask, ops)
}

const attachVerb = "ibv_qp_attach_comp_cntr"

// localOps are the operations posted here, which complete here.
const localOps = QPAttachCompCntrOpSend | QPAttachCompCntrOpRecv | QPAttachCompCntrOpRDMARead | QPAttachCompCntrOpRDMAWrite

// remoteOps are the operations started by the peer.
const remoteOps = QPAttachCompCntrOpRemoteRDMARead | QPAttachCompCntrOpRemoteRDMAWrite

// everything does each kind of operation from x to y: 2 sends with their receives, 3 writes and 5
// reads, polled.
func (b *bench) everything(x, y *QP, m *MR) {
	b.t.Helper()
	b.postRecv(y, recv(m), recv(m))
	b.post(x, send(m), send(m), write(m), write(m), write(m), read(m), read(m), read(m), read(m), read(m))
	b.succeed(2 + 2 + 3 + 5)
}

var draftStatements = []statement{
	{"003:28", "ibv_qp_attach_comp_cntr() attaches the completion counter comp_cntr to the queue pair qp. The attr argument specifies which operation types should update the counter.", nil,
		func(t *testing.T, b *bench) {
			k, m := b.compCntr(), b.region()
			x, y := b.rc(func(x, _ *QP) { b.check(x.AttachCompCntr(k, QPAttachCompCntrOpRDMAWrite)) })
			b.everything(x, y, m)
			b.counts(k, 3, 0)
		}},
	{"003:32", "The QP must be in IBV_QPS_RESET or IBV_QPS_INIT state when attaching a completion counter.", nil,
		func(t *testing.T, b *bench) {
			k := b.compCntr()
			q := b.pair()
			b.check(q.AttachCompCntr(k, QPAttachCompCntrOpSend))
			b.toInit(q)
			b.check(q.AttachCompCntr(k, QPAttachCompCntrOpRecv))
		}},
	{"003:33", "Attempting to attach a counter to a QP in any other state will fail with EINVAL.", nil,
		func(t *testing.T, b *bench) {
			k := b.compCntr()
			q := b.pair()
			b.toInit(q)
			refused := func(in QPState) {
				t.Helper()
				err := q.AttachCompCntr(k, QPAttachCompCntrOpSend)
				if wantErrno(t, err, attachVerb, syscall.EINVAL); !strings.Contains(err.Error(), "state "+in.String()) {
					t.Errorf("the error does not name the state %v: %v", in, err)
				}
			}
			b.check(q.Modify(b.way(QPSRTR, q, q), needed(q.typ, QPSRTR)))
			refused(QPSRTR)
			b.check(q.Modify(b.way(QPSRTS, q, q), needed(q.typ, QPSRTS)))
			refused(QPSRTS)
			b.check(q.Modify(QPAttr{State: QPSSQD}, QPAttrState))
			refused(QPSSQD)
			b.check(q.Modify(QPAttr{State: QPSErr}, QPAttrState))
			refused(QPSErr)
			b.check(k.Close()) // no object holds it
		}},
	{"003:36", "The completion counter starts collecting values for the specified QP once attached.", nil,
		func(t *testing.T, b *bench) {
			k, m := b.compCntr(), b.region()
			x, y := b.rc(nil)
			b.everything(x, y, m)
			b.counts(k, 0, 0)
			b.check(x.Modify(QPAttr{State: QPSReset}, QPAttrState))
			b.check(y.Modify(QPAttr{State: QPSReset}, QPAttrState))
			b.check(x.AttachCompCntr(k, localOps))
			b.toInit(x)
			b.toInit(y)
			b.connect(x, y)
			b.everything(x, y, m)
			b.counts(k, 2+3+5, 0)
		}},
	{"003:37", "Attaching the same completion counter to multiple QPs will accumulate values from all attached QPs into the same counter.", nil,
		func(t *testing.T, b *bench) {
			k, m := b.compCntr(), b.region()
			attach := func(x, _ *QP) { b.check(x.AttachCompCntr(k, QPAttachCompCntrOpRDMAWrite)) }
			first, _ := b.rc(attach)
			second, other := b.rc(attach)
			b.post(first, repeat(7, write(m))...)
			b.post(second, repeat(4, write(m))...)
			b.post(other, write(m)) // not attached
			b.succeed(12)
			b.counts(k, 11, 0)
		}},
	{"003:40", "Multiple completion counters can be attached to the same QP, provided their op_mask values do not overlap.", nil,
		func(t *testing.T, b *bench) {
			sends, reads, rest, m := b.compCntr(), b.compCntr(), b.compCntr(), b.region()
			x, y := b.rc(func(x, y *QP) {
				b.check(x.AttachCompCntr(sends, QPAttachCompCntrOpSend))
				b.check(x.AttachCompCntr(reads, QPAttachCompCntrOpRDMARead))
				b.check(x.AttachCompCntr(rest, QPAttachCompCntrOpRecv|QPAttachCompCntrOpRDMAWrite|remoteOps))
			})
			b.everything(x, y, m)
			b.counts(sends, 2, 0)
			b.counts(reads, 5, 0)
			b.counts(rest, 3, 0)
		}},
	{"003:41", "Attempting to attach a counter with an op_mask that conflicts with an already attached counter will fail.", nil,
		func(t *testing.T, b *bench) {
			first, second, m := b.compCntr(), b.compCntr(), b.region()
			x, y := b.rc(func(x, _ *QP) {
				b.check(x.AttachCompCntr(first, QPAttachCompCntrOpSend|QPAttachCompCntrOpRDMAWrite))
				err := x.AttachCompCntr(second, QPAttachCompCntrOpRDMAWrite|QPAttachCompCntrOpRDMARead)
				if wantErrno(t, err, attachVerb, syscall.EBUSY); !errors.Is(err, ErrBusy) {
					t.Errorf("%v is not ErrBusy", err)
				}
			})
			b.everything(x, y, m) // and the whole mask was refused
			b.counts(first, 2+3, 0)
			b.counts(second, 0, 0)
			b.check(second.Close())
		}},
	{"003:44", "The op_mask field controls which operation completions are counted. Local operations count completions initiated by the local QP.", nil,
		func(t *testing.T, b *bench) {
			want := map[CompCntrOps]uint64{
				CompCntrAttachOpSend: 2, CompCntrAttachOpRecv: 2, CompCntrAttachOpRDMARead: 5, CompCntrAttachOpRDMAWrite: 3,
			}
			at, m := map[CompCntrOps][2]*CompCntr{}, b.region()
			for op := range want {
				at[op] = [2]*CompCntr{b.compCntr(), b.compCntr()}
			}
			x, y := b.rc(func(x, y *QP) {
				for op, k := range at {
					b.check(x.AttachCompCntr(k[0], op))
					b.check(y.AttachCompCntr(k[1], op))
				}
			})
			b.everything(x, y, m)
			for op, n := range want {
				mine, theirs := n, uint64(0)
				if op == CompCntrAttachOpRecv { // the receives are y's
					mine, theirs = 0, n
				}
				b.counts(at[op][0], mine, 0)
				b.counts(at[op][1], theirs, 0)
			}
		}},
	{"003:47", "Remote operations count completions of incoming RDMA operations initiated by the remote side.", nil,
		func(t *testing.T, b *bench) {
			reads, writes, m := b.compCntr(), b.compCntr(), b.region()
			x, y := b.rc(func(_, y *QP) {
				b.check(y.AttachCompCntr(reads, CompCntrAttachOpRemoteRDMARead))
				b.check(y.AttachCompCntr(writes, CompCntrAttachOpRemoteRDMAWrite))
			})
			b.everything(x, y, m)
			b.counts(reads, 5, 0)
			b.counts(writes, 3, 0)
			b.everything(y, x, m) // y's own are not
			b.counts(reads, 5, 0)
			b.counts(writes, 3, 0)
		}},
	{"003:50", "Supported op_mask values may vary by device; unsupported values will result in an ENOTSUP error.", []string{"COMP_CNTR_OPS", "send,recv,rdma_write"},
		func(t *testing.T, b *bench) {
			k := b.compCntr()
			q := b.pair()
			err := q.AttachCompCntr(k, QPAttachCompCntrOpSend|QPAttachCompCntrOpRDMARead|QPAttachCompCntrOpRemoteRDMAWrite)
			if wantErrno(t, err, attachVerb, syscall.ENOTSUP); !errors.Is(err, probe.ErrNotSupported) || !strings.Contains(err.Error(), "RDMA_READ|REMOTE_RDMA_WRITE") {
				t.Errorf("the error does not answer a probe, or does not name the operations: %v", err)
			}
			b.check(q.AttachCompCntr(k, QPAttachCompCntrOpSend|QPAttachCompCntrOpRecv|QPAttachCompCntrOpRDMAWrite))
		}},
	{"003:53", "There is no explicit detach operation.", nil,
		func(t *testing.T, b *bench) {
			for _, verb := range []string{"ibv_qp_detach_comp_cntr", "ibv_detach_comp_cntr"} {
				if b.lib.has(verb) {
					t.Errorf("there is %s", verb)
				}
			}
			k, other, m := b.compCntr(), b.compCntr(), b.region()
			x, y := b.rc(func(x, _ *QP) { b.check(x.AttachCompCntr(k, QPAttachCompCntrOpSend)) })
			for _, q := range []*QP{x, y} {
				b.check(q.Modify(QPAttr{State: QPSReset}, QPAttrState)) // nor is that one
				b.toInit(q)
			}
			wantErrno(t, x.AttachCompCntr(other, QPAttachCompCntrOpSend), attachVerb, syscall.EBUSY)
			b.connect(x, y)
			b.everything(x, y, m)
			b.counts(k, 2, 0)
		}},
	{"003:53 implicit", "A completion counter is implicitly detached when the QP it is attached to is destroyed.", nil,
		func(t *testing.T, b *bench) {
			k, m := b.compCntr(), b.region()
			x, y := b.rc(func(x, _ *QP) { b.check(x.AttachCompCntr(k, localOps)) })
			b.everything(x, y, m)
			b.check(x.Close())
			b.counts(k, 10, 0) // the counter keeps its value
			z := b.pair()
			b.check(z.AttachCompCntr(k, localOps))
			b.check(z.Close())
			b.check(k.Close())
		}},
	{"003:54", "A completion counter cannot be destroyed while it is still attached to any QP; the QP must be destroyed first.", nil,
		func(t *testing.T, b *bench) {
			k := b.compCntr()
			x, y := b.pair(), b.queuePair(QPTUD)
			b.check(x.AttachCompCntr(k, QPAttachCompCntrOpSend))
			b.check(x.AttachCompCntr(k, QPAttachCompCntrOpRecv)) // held once for all operations
			b.check(y.AttachCompCntr(k, QPAttachCompCntrOpSend))
			for i, q := range []*QP{x, y} {
				if err := k.Close(); !errors.Is(err, ErrBusy) || !strings.HasSuffix(err.Error(), []string{"close 2 queue pairs first", "close 1 queue pair first"}[i]) {
					t.Errorf("destroying a counter that is attached: %v", err)
				}
				if errno := b.lib.v.destroyCompCntr(k.h); errno != syscall.EBUSY { // past our own check
					t.Errorf("the library destroys a counter that is attached: %v", errno)
				}
				b.counts(k, 0, 0)
				b.check(q.Close())
			}
			b.check(k.Close())
		}},
	{"003:60", "qp: The queue pair to attach the completion counter to.", nil,
		func(t *testing.T, b *bench) {
			k := b.compCntr()
			q, other := b.pair(), b.pair()
			b.check(q.Close())
			if err := q.AttachCompCntr(k, QPAttachCompCntrOpSend); !errors.Is(err, ErrClosed) {
				t.Errorf("attaching to a queue pair that was destroyed: %v", err)
			}
			b.check(other.AttachCompCntr(k, QPAttachCompCntrOpSend)) // another queue pair may have the same counter
			b.check(other.Close())
			b.check(k.Close())
		}},
	{"003:63", "comp_cntr: The completion counter to attach, previously created with ibv_create_comp_cntr().", nil,
		func(t *testing.T, b *bench) {
			k, q := b.compCntr(), b.pair()
			b.check(k.Close())
			if err := q.AttachCompCntr(k, QPAttachCompCntrOpSend); !errors.Is(err, ErrClosed) {
				t.Errorf("attaching a counter that was destroyed: %v", err)
			}
		}},
	{"003:88", "comp_mask: Bitmask specifying what fields in the structure are valid.", nil,
		func(t *testing.T, b *bench) {
			k := b.compCntr()
			if errno := attachErrno(b.pair(), k, 1, QPAttachCompCntrOpSend); errno != 0 {
				t.Errorf("libibverbs does not look at it, and returns %v", errno)
			}
		}},
	{"003:92", "op_mask: Bitmask of ibv_comp_cntr_attach_op values specifying which operation types should update the counter.", nil,
		func(t *testing.T, b *bench) {
			k := b.compCntr()
			q := b.pair()
			err := q.AttachCompCntr(k, 0) // the kernel's errno for an empty set of operations
			if wantErrno(t, err, attachVerb, syscall.EINVAL); !strings.Contains(err.Error(), "no operation") {
				t.Errorf("the error does not say that none is named: %v", err)
			}
			if errno := attachErrno(q, k, 0, 1<<6); errno != syscall.EINVAL { // libibverbs drops it: no operation is left
				t.Errorf("an operation that does not exist: %v", errno)
			}
			b.check(q.AttachCompCntr(k, 1<<6|QPAttachCompCntrOpSend))
			wantErrno(t, q.AttachCompCntr(k, QPAttachCompCntrOpSend), attachVerb, syscall.EBUSY)
		}},
	{"003:97", "ibv_qp_attach_comp_cntr() returns 0 on success, or the value of errno on failure (which indicates the failure reason).", []string{"FAIL", "ibv_qp_attach_comp_cntr=EAGAIN@1-1"},
		func(t *testing.T, b *bench) {
			k := b.compCntr()
			q := b.pair()
			wantErrno(t, q.AttachCompCntr(k, QPAttachCompCntrOpSend), attachVerb, syscall.EAGAIN)
			b.check(k.Close()) // a failed attach holds no reference
			k = must(b.ctx.CreateCompCntr(CompCntrOptions{}))(t)
			b.check(q.AttachCompCntr(k, QPAttachCompCntrOpSend))
			b.check(q.Close())
			b.check(k.Close())
		}},
	{"003:102", "EINVAL: Invalid argument(s) passed.", nil,
		func(t *testing.T, b *bench) {
			mine := b.ctx
			b.open()
			k := b.compCntr() // belongs to another context of the same device
			b.ctx = mine
			q := b.pair()
			err := q.AttachCompCntr(k, QPAttachCompCntrOpSend)
			if wantErrno(t, err, attachVerb, syscall.EINVAL); !strings.Contains(err.Error(), "another context") {
				t.Errorf("the error does not say why: %v", err)
			}
			if errno := attachErrno(q, k, 0, QPAttachCompCntrOpSend); errno != syscall.EINVAL {
				t.Errorf("the library answers %v", errno)
			}
		}},
	{"003:105", "ENOTSUP: Requested operation is not supported on this device.", []string{"FAIL", "ibv_qp_attach_comp_cntr=ENOTSUP"},
		func(t *testing.T, b *bench) {
			k := b.compCntr()
			err := b.pair().AttachCompCntr(k, QPAttachCompCntrOpSend)
			if wantErrno(t, err, attachVerb, syscall.ENOTSUP); !errors.Is(err, probe.ErrNotSupported) {
				t.Errorf("%v does not answer a probe", err)
			}
		}},
	{"003:108", "EBUSY: The op_mask overlaps with a completion counter already attached to this QP.", nil,
		func(t *testing.T, b *bench) {
			k, other := b.compCntr(), b.compCntr()
			x, y := b.pair(), b.pair()
			for op := range 6 {
				b.check(x.AttachCompCntr(k, 1<<op))
			}
			for op := range 6 {
				wantErrno(t, x.AttachCompCntr(other, 1<<op), attachVerb, syscall.EBUSY)
			}
			b.check(y.AttachCompCntr(other, localOps|remoteOps)) // to this QP alone
		}},
}

var mergedAttachStatements = []statement{
	{"attach:46", "Supported op_mask values may vary by device and can be queried using ibv_query_comp_cntr_caps(3).", []string{"COMP_CNTR_OPS", "send,recv,remote_rdma_read,remote_rdma_write"},
		func(t *testing.T, b *bench) {
			k := b.compCntr()
			q := b.pair()
			caps := must(b.ctx.QueryCompCntrCaps())(t)
			if caps.SupportedQPAttachOps != QPAttachCompCntrOpSend|QPAttachCompCntrOpRecv|remoteOps {
				t.Errorf("the device has %v", caps.SupportedQPAttachOps)
			}
			for op := CompCntrOps(1); op < 1<<6; op <<= 1 {
				err := q.AttachCompCntr(k, op)
				if has := caps.SupportedQPAttachOps&op != 0; has != (err == nil) {
					t.Errorf("%v: %v, the capabilities say %v", op, err, has)
				}
			}
		}},
	{"attach:51", "Each QP and operation type pair can be associated with at most one completion counter.", nil,
		func(t *testing.T, b *bench) {
			k := b.compCntr()
			q := b.pair()
			b.check(q.AttachCompCntr(k, QPAttachCompCntrOpSend))
			wantErrno(t, q.AttachCompCntr(k, QPAttachCompCntrOpSend), attachVerb, syscall.EBUSY) // not twice either
			b.check(q.AttachCompCntr(k, QPAttachCompCntrOpRecv))
		}},
	{"attach:92", "comp_mask: Used for extensibility, should be set to 0.", nil,
		func(t *testing.T, b *bench) {
			k := b.compCntr()
			q := b.pair()
			if errno := attachErrno(q, k, 0, QPAttachCompCntrOpSend); errno != 0 {
				t.Errorf("without it: %v", errno)
			}
			if errno := attachErrno(q, k, 1<<31, QPAttachCompCntrOpRecv); errno != 0 {
				t.Errorf("with it: %v", errno)
			}
			b.check(q.Close())
		}},
}
