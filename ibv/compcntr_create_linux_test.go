//go:build cgo

package ibv

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/flowtally/flowtally/probe"
)

// words are the verbs of the two values of a counter.
var words = []struct {
	name       string
	set, inc   func(*CompCntr, uint64) error
	read       func(*CompCntr) (uint64, error)
	other      func(*CompCntr) (uint64, error)
	setV, incV string
	readV      string
}{
	{"completions", (*CompCntr).Set, (*CompCntr).Inc, (*CompCntr).Read, (*CompCntr).ReadErr,
		"ibv_set_comp_cntr", "ibv_inc_comp_cntr", "ibv_read_comp_cntr"},
	{"errors", (*CompCntr).SetErr, (*CompCntr).IncErr, (*CompCntr).ReadErr, (*CompCntr).Read,
		"ibv_set_err_comp_cntr", "ibv_inc_err_comp_cntr", "ibv_read_err_comp_cntr"},
}

var mergedCreateStatements = []statement{
	{"create:46", "Completion counters provide a lightweight completion mechanism as an alternative or extension to completion queues (CQs).", nil,
		func(t *testing.T, b *bench) {
			k, m := b.compCntr(), b.region()
			x, _ := b.rc(func(x, _ *QP) { b.check(x.AttachCompCntr(k, QPAttachCompCntrOpRDMAWrite)) })
			silent := write(m)
			silent.Flags = 0
			b.post(x, silent, silent, write(m)) // an alternative: no entry, but counted
			b.succeed(1)                        // an extension: the completion must still arrive
			b.counts(k, 3, 0)
		}},
	{"create:54", "Each completion counter maintains two distinct 64-bit values: a completion count that is incremented on successful completions, and an error count that is incremented when operations complete in error.", nil,
		func(t *testing.T, b *bench) {
			k, m := b.compCntr(), b.region()
			x, _ := b.rc(func(x, _ *QP) { b.check(x.AttachCompCntr(k, QPAttachCompCntrOpRDMAWrite)) })
			wrong := write(m)
			wrong.RKey++
			b.post(x, repeat(4, write(m))...)
			b.post(x, wrong, write(m), write(m)) // the first ends in error, the others are flushed
			want := []WCStatus{0, 0, 0, 0, WCRemAccessErr, WCWRFlushErr, WCWRFlushErr}
			for i, wc := range b.completions(7) {
				if wc.Status != want[i] {
					t.Errorf("completion %d: %v, want %v", i, wc.Status, want[i])
				}
			}
			b.counts(k, 4, 3)
		}},
	{"create:54 distinct", "Each completion counter maintains two distinct 64-bit values (...)", nil,
		func(t *testing.T, b *bench) {
			k := b.compCntr()
			for _, w := range words {
				b.check(w.set(k, 0))
			}
			b.check(k.Set(1 << 40))
			b.check(k.SetErr(1<<41 + 1))
			b.counts(k, 1<<40, 1<<41+1)
		}},
	{"create:58", "ibv_create_comp_cntr() allocates a new completion counter for the RDMA device context context.", nil,
		func(t *testing.T, b *bench) {
			k, other := b.compCntr(), b.compCntr()
			b.counts(k, 0, 0)
			b.check(k.Set(5))
			b.counts(other, 0, 0)
			if err := b.ctx.Close(); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "2 completion counters") {
				t.Errorf("closing the context: %v", err)
			}
		}},
	{"create:63", "ibv_destroy_comp_cntr() releases all resources associated with the completion counter comp_cntr.", nil,
		func(t *testing.T, b *bench) {
			caps := must(b.ctx.QueryCompCntrCaps())(t)
			for range 2 * caps.MaxCounters { // each Close frees the counter's slot
				b.check(must(b.ctx.CreateCompCntr(CompCntrOptions{}))(t).Close())
			}
		}},
	{"create:67", "ibv_set_comp_cntr() sets the completion count, ibv_set_err_comp_cntr() the error count, to value. ibv_inc_comp_cntr() increments the completion count, ibv_inc_err_comp_cntr() the error count, by amount. ibv_read_comp_cntr() and ibv_read_err_comp_cntr() read them.", nil,
		func(t *testing.T, b *bench) {
			for _, w := range words {
				k := b.compCntr()
				for _, step := range []struct {
					do   func(*CompCntr, uint64) error
					by   uint64
					want uint64
				}{{w.set, 7, 7}, {w.inc, 5, 12}, {w.inc, 0, 12}, {w.set, 3, 3}, {w.inc, 1, 4}, {w.set, 0, 0}} {
					b.check(step.do(k, step.by))
					if got := must(w.read(k))(t); got != step.want {
						t.Errorf("%s: %d, want %d", w.name, got, step.want)
					}
					if got := must(w.other(k))(t); got != 0 {
						t.Errorf("%s: the other value is %d", w.name, got)
					}
				}
			}
		}},
	{"create:115", "comp_mask: Bitmask specifying what fields in the structure are valid.", nil,
		func(t *testing.T, b *bench) {
			if h, errno := b.lib.v.createCompCntr(b.ctx.h, 1, CompCntrTypeWRs, 0); errno != syscall.EOPNOTSUPP {
				t.Errorf("a field that does not exist: %#x, %v", h, errno)
			}
		}},
	{"create:118", "type: The counting mode for the completion counter. Not all devices support all modes.", nil,
		func(t *testing.T, b *bench) {
			b.check(must(b.ctx.CreateCompCntr(CompCntrOptions{Type: CompCntrTypeWRs}))(t).Close())
			k, err := b.ctx.CreateCompCntr(CompCntrOptions{Type: CompCntrTypeBytes}) // as on EFA
			if wantErrno(t, err, "ibv_create_comp_cntr", syscall.ENOTSUP); k != nil || !errors.Is(err, probe.ErrNotSupported) {
				t.Errorf("%v does not answer a probe, or there is an object beside it", err)
			}
			_, err = b.ctx.CreateCompCntr(CompCntrOptions{Type: 2})
			wantErrno(t, err, "ibv_create_comp_cntr", syscall.EOPNOTSUPP)
		}},
	{"create:121", "IBV_COMP_CNTR_TYPE_WRS counts completed work requests (default).", nil,
		func(t *testing.T, b *bench) {
			if (CompCntrOptions{}).Type != CompCntrTypeWRs {
				t.Error("the zero value is not the default")
			}
			k, m := b.compCntr(), b.region()
			x, _ := b.rc(func(x, _ *QP) { b.check(x.AttachCompCntr(k, QPAttachCompCntrOpRDMAWrite)) })
			small, none := write(m), write(m)
			small.SGE.Length, none.SGE.Length = 1, 0
			b.post(x, small, write(m), none)
			b.succeed(3)
			b.counts(k, 3, 0) // counters of any size work
		}},
	{"create:125", "flags: Reserved for future use, for now must be 0.", nil,
		func(t *testing.T, b *bench) {
			if h, errno := b.lib.v.createCompCntr(b.ctx.h, 0, CompCntrTypeWRs, 1); errno != syscall.EOPNOTSUPP {
				t.Errorf("a flag: %#x, %v", h, errno)
			}
		}},
	{"create:129", "ibv_create_comp_cntr() returns a pointer to the allocated ibv_comp_cntr object, or NULL if the request fails (and sets errno to indicate the failure reason).",
		[]string{"FAIL", "ibv_create_comp_cntr=EAGAIN"},
		func(t *testing.T, b *bench) {
			k, err := b.ctx.CreateCompCntr(CompCntrOptions{})
			if wantErrno(t, err, "ibv_create_comp_cntr", syscall.EAGAIN); k != nil {
				t.Error("an object beside the error")
			}
		}},
	{"create:133", "ibv_destroy_comp_cntr(), ibv_set_comp_cntr(), (...) return 0 on success, or the value of errno on failure (which indicates the failure reason).",
		[]string{"FAIL", "ibv_set_comp_cntr=EIO,ibv_set_err_comp_cntr=EAGAIN,ibv_inc_comp_cntr=EPERM,ibv_inc_err_comp_cntr=EINTR,ibv_read_comp_cntr=ENOMEM,ibv_read_err_comp_cntr=EFAULT,ibv_destroy_comp_cntr=EBUSY@1-1"},
		func(t *testing.T, b *bench) {
			k := b.compCntr()
			_, rerr := k.Read()
			_, reerr := k.ReadErr()
			for _, c := range []struct {
				err   error
				verb  string
				errno syscall.Errno
			}{
				{k.Set(1), "ibv_set_comp_cntr", syscall.EIO}, {k.SetErr(1), "ibv_set_err_comp_cntr", syscall.EAGAIN},
				{k.Inc(1), "ibv_inc_comp_cntr", syscall.EPERM}, {k.IncErr(1), "ibv_inc_err_comp_cntr", syscall.EINTR},
				{rerr, "ibv_read_comp_cntr", syscall.ENOMEM}, {reerr, "ibv_read_err_comp_cntr", syscall.EFAULT},
				{k.Close(), "ibv_destroy_comp_cntr", syscall.EBUSY},
			} {
				wantErrno(t, c.err, c.verb, c.errno)
			}
			b.check(k.Close()) // after EBUSY the call can be repeated
		}},
	{"create:141", "ENOTSUP: Completion counters are not supported on this device, or the requested operation is not supported for the given counter configuration.", []string{"WITHOUT", "comp_cntr"},
		func(t *testing.T, b *bench) {
			_, err := b.ctx.CreateCompCntr(CompCntrOptions{})
			if wantErrno(t, err, "ibv_create_comp_cntr", syscall.ENOTSUP); !errors.Is(err, probe.ErrNotSupported) {
				t.Errorf("%v does not answer a probe", err)
			}
		}},
	{"create:146", "ENOMEM: Not enough resources to create the completion counter.", nil,
		func(t *testing.T, b *bench) {
			caps := must(b.ctx.QueryCompCntrCaps())(t)
			for range caps.MaxCounters {
				b.compCntr()
			}
			_, err := b.ctx.CreateCompCntr(CompCntrOptions{})
			wantErrno(t, err, "ibv_create_comp_cntr", syscall.ENOMEM)
		}},
	// The kernel passes values above max_value on, and the device drops the bits that its counters lack. External memory is
	// an argument that is refused (TestInvalidExternalMemoryIsRefused).
	{"create:149", "EINVAL: Invalid argument(s) passed.", []string{"COMP_CNTR_MAX", "1023"},
		func(t *testing.T, b *bench) {
			for _, w := range words {
				k := b.compCntr()
				b.check(w.set(k, 1024+5))
				b.check(w.inc(k, 2048+1))
				if got := must(w.read(k))(t); got != 6 {
					t.Errorf("%s: %d, want 6", w.name, got)
				}
			}
		}},
	{"create:152", "EBUSY: The completion counter is still attached to a QP (ibv_destroy_comp_cntr() only).", nil,
		func(t *testing.T, b *bench) {
			k := b.compCntr()
			q := b.pair()
			b.check(q.AttachCompCntr(k, QPAttachCompCntrOpSend))
			if errno := b.lib.v.destroyCompCntr(k.h); errno != syscall.EBUSY {
				t.Errorf("the library answers %v", errno)
			}
			b.check(k.Set(3)) // only: the others go on
			b.check(k.Inc(1))
			b.counts(k, 4, 0)
		}},
	{"create:162", "Updates made to counter values (...) may not be immediately visible (...). However, the final updated value will eventually be reflected.", nil,
		func(t *testing.T, b *bench) {
			k, m := b.compCntr(), b.region()
			x, _ := b.rc(func(x, _ *QP) { b.check(x.AttachCompCntr(k, QPAttachCompCntrOpRDMAWrite)) })
			b.check(k.Set(100))
			b.check(k.Inc(10))
			b.post(x, repeat(9, write(m))...)
			b.succeed(9)
			b.counts(k, 119, 0) // completions come on top of both
		}},
}

var capsStatements = []statement{
	{"caps:27", "ibv_query_comp_cntr_caps() queries the completion counter capabilities of the RDMA device associated with context.", nil,
		func(t *testing.T, b *bench) {
			caps := must(b.ctx.QueryCompCntrCaps())(t)
			if caps.MaxValue == 0 || caps.MaxCounters == 0 || caps.SupportedQPAttachOps&localOps == 0 {
				t.Errorf("they are %+v", caps)
			}
		}},
	{"caps:43", "max_value: The maximum value a completion counter can hold. A subsequent increment that would exceed this value wraps the counter to zero.", []string{"COMP_CNTR_MAX", "7"},
		func(t *testing.T, b *bench) {
			if caps := must(b.ctx.QueryCompCntrCaps())(t); caps.MaxValue != 7 {
				t.Fatalf("it is %d", caps.MaxValue)
			}
			for _, w := range words {
				k := b.compCntr()
				for i := range uint64(20) {
					b.check(w.inc(k, 1))
					if got, want := must(w.read(k))(t), (i+1)%8; got != want {
						t.Errorf("%s after %d: %d, want %d", w.name, i+1, got, want)
					}
				}
			}
			k, m := b.compCntr(), b.region() // and so do completions
			x, _ := b.rc(func(x, _ *QP) { b.check(x.AttachCompCntr(k, QPAttachCompCntrOpRDMAWrite)) })
			for i := range uint64(20) {
				b.post(x, write(m))
				b.succeed(1)
				b.counts(k, (i+1)%8, 0)
			}
		}},
	{"caps:47", "max_counters: The maximum number of completion counters that can be created on this device.", nil,
		func(t *testing.T, b *bench) {
			caps := must(b.ctx.QueryCompCntrCaps())(t)
			all := make([]*CompCntr, caps.MaxCounters)
			for i := range all {
				all[i] = b.compCntr()
			}
			if _, err := b.ctx.CreateCompCntr(CompCntrOptions{}); err == nil {
				t.Error("there can be more")
			}
			b.check(all[0].Close())
			b.compCntr() // one went, one comes
		}},
	{"caps:51", "supported_qp_attach_ops: A bitmask of ibv_qp_attach_comp_cntr_op values indicating which attach operations are supported by the device.", []string{"COMP_CNTR_OPS", "send,rdma_read"},
		func(t *testing.T, b *bench) {
			if got := must(b.ctx.QueryCompCntrCaps())(t).SupportedQPAttachOps; got != QPAttachCompCntrOpSend|QPAttachCompCntrOpRDMARead {
				t.Errorf("it is %v", got)
			}
		}},
	{"caps:57", "ibv_query_comp_cntr_caps() returns 0 on success, or the value of errno on failure (which indicates the failure reason).", []string{"FAIL", "ibv_query_comp_cntr_caps=EAGAIN"},
		func(t *testing.T, b *bench) {
			_, err := b.ctx.QueryCompCntrCaps()
			wantErrno(t, err, "ibv_query_comp_cntr_caps", syscall.EAGAIN)
		}},
	{"caps:63", "ENOTSUP: Completion counters are not supported on this device.", []string{"WITHOUT", "comp_cntr"},
		func(t *testing.T, b *bench) {
			_, err := b.ctx.QueryCompCntrCaps()
			if wantErrno(t, err, "ibv_query_comp_cntr_caps", syscall.ENOTSUP); !errors.Is(err, probe.ErrNotSupported) {
				t.Errorf("%v does not answer a probe", err)
			}
		}},
}

// rdma-core 44 lacks the symbols.
func TestCompCntrsOfOldLibrariesAreNotSupported(t *testing.T) {
	b := newData(t, newWire(t), Options{EFA: softLibs(t).Shim})
	if b.lib.has("ibv_create_comp_cntr") {
		t.Skip("the host's rdma-core has completion counters")
	}
	_, err := b.ctx.QueryCompCntrCaps()
	wantErrno(t, err, "ibv_query_comp_cntr_caps", syscall.ENOSYS)
	_, err = b.ctx.CreateCompCntr(CompCntrOptions{})
	if wantErrno(t, err, "ibv_create_comp_cntr", syscall.ENOSYS); !errors.Is(err, probe.ErrNotSupported) {
		t.Errorf("%v does not answer a probe", err)
	}
	// libefa's external counters are useless without those of libibverbs.
	_, err = b.ctx.CreateCompCntr(CompCntrOptions{External: &CompCntrMemory{Comp: b.region().Bytes()[:8]}})
	var u *probe.UnsupportedError
	if !errors.As(err, &u) || !strings.Contains(u.Reason, "libibverbs has no completion counters") || u.Fix == "" {
		t.Errorf("in memory of ours: %v", err)
	}
}
