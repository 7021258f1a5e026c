//go:build cgo

package ibv

import (
	"encoding/binary"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/flowtally/flowtally/probe"
)

// external makes a counter with external words at the end of m; flags choose the words, as
// EFADV_COMP_CNTR_INIT_WITH_*_EXTERNAL_MEM do.
func (b *bench) external(m *MR, flags int) (*CompCntr, CompCntrMemory) {
	b.t.Helper()
	var mem CompCntrMemory
	at := m.Bytes()[4096-16:]
	clear(at)
	if flags&1 != 0 {
		mem.Comp = at[:8]
	}
	if flags&2 != 0 {
		mem.Err = at[8:]
	}
	k := must(b.ctx.CreateCompCntr(CompCntrOptions{External: &mem}))(b.t)
	b.closes(k)
	return k, mem
}

// word returns the value as another process with only the memory would read it. These tests read
// without concurrency.
func word(mem []byte) uint64 { return binary.NativeEndian.Uint64(mem) }

// Each case is a statement of efadv_create_comp_cntr(3) (rdma-core 65, providers/efa/man). A word
// that the caller leaves out is the library's own.
func TestDeviceCountsInMemoryOfTheCaller(t *testing.T) {
	libs, wire := softLibs(t), newWire(t)
	options := Options{Library: libs.Shim, EFA: libs.Shim}
	for flags := range 4 {
		t.Run([]string{"none", "comp", "err", "both"}[flags], func(t *testing.T) {
			b := newData(t, wire, options)
			m, words := b.region(), b.region()
			k, mem := b.external(words, flags)
			x, _ := b.rc(func(x, _ *QP) { b.check(x.AttachCompCntr(k, QPAttachCompCntrOpRDMAWrite)) })
			for i := range uint64(5) {
				b.post(x, write(m))
				b.succeed(1)
				b.counts(k, i+1, 0)
				if mem.Comp != nil && word(mem.Comp) != i+1 {
					t.Errorf("after %d the word is %d", i+1, word(mem.Comp))
				}
			}
			wrong := write(m)
			wrong.RKey++
			b.post(x, wrong, write(m))
			b.completions(2)
			b.counts(k, 5, 2)
			if mem.Err != nil && word(mem.Err) != 2 {
				t.Errorf("the word of errors is %d, want 2", word(mem.Err))
			}
			b.check(k.Set(1 << 33))
			b.check(k.IncErr(3))
			b.counts(k, 1<<33, 5)
			at := words.Bytes()[4096-16:]
			for i, want := range []uint64{1 << 33, 5} {
				if flags>>i&1 == 0 {
					want = 0 // not the device's
				}
				if got := word(at[8*i:]); got != want {
					t.Errorf("word %d is %d, want %d", i, got, want)
				}
			}
			if words.Bytes()[4096-17] != 0 {
				t.Error("the device wrote beside its words")
			}
		})
	}
	t.Run("destroyed", func(t *testing.T) {
		b := newData(t, wire, options)
		m, words := b.region(), b.region()
		k, mem := b.external(words, 3)
		x, _ := b.rc(func(x, _ *QP) { b.check(x.AttachCompCntr(k, QPAttachCompCntrOpRDMAWrite)) })
		b.post(x, write(m))
		b.succeed(1)
		if err := k.Close(); !errors.Is(err, ErrBusy) {
			t.Errorf("destroying a counter that is attached: %v", err)
		}
		b.check(x.Close())
		for range 2 {
			b.check(k.Close())
		}
		if word(mem.Comp) != 1 { // the value from before stays
			t.Errorf("the word is %d", word(mem.Comp))
		}
		if err := b.lib.Close(); !errors.Is(err, ErrBusy) {
			t.Errorf("closing the library: %v", err)
		}
	})
	t.Run("wraps", func(t *testing.T) {
		b := newData(t, wire, options, "COMP_CNTR_MAX", "3")
		words := b.region()
		k, mem := b.external(words, 3)
		for i := range uint64(10) {
			b.check(k.Inc(1))
			if word(mem.Comp) != (i+1)%4 {
				t.Errorf("after %d the word is %d", i+1, word(mem.Comp))
			}
		}
	})
}

func TestInvalidExternalMemoryIsRefused(t *testing.T) {
	libs, wire := softLibs(t), newWire(t)
	b := newData(t, wire, Options{Library: libs.Shim, EFA: libs.Shim})
	words := b.region().Bytes()
	for _, mem := range []CompCntrMemory{
		{Comp: words[1:9]}, {Err: words[4:12]}, {Comp: words[:8], Err: words[15:23]}, // not at a multiple of 8
		{Comp: words[:4]}, {Comp: words[:16]}, {Err: words[:0]}, // not of 8 bytes
	} {
		k, err := b.ctx.CreateCompCntr(CompCntrOptions{External: &mem})
		if wantErrno(t, err, "efadv_create_comp_cntr", syscall.EINVAL); k != nil {
			t.Error("an object beside the error")
		}
	}
	_, err := b.ctx.CreateCompCntr(CompCntrOptions{Type: CompCntrTypeBytes, External: &CompCntrMemory{Comp: words[:8]}})
	if wantErrno(t, err, "efadv_create_comp_cntr", syscall.EOPNOTSUPP); !errors.Is(err, probe.ErrNotSupported) {
		t.Errorf("%v does not answer a probe", err)
	}

}

// The cases are no libefa, one without a verb, and a device that is none of EFA.
func TestExternalMemoryIsRefusedWithoutEFA(t *testing.T) {
	libs, wire := softLibs(t), newWire(t)
	none, old := filepath.Join(t.TempDir(), "none"), stubLibrary(t, "")
	for _, c := range []struct {
		name, efa, without string
		says               string
	}{
		{"no libefa", none, "", none},
		{"a libefa without the verb", old, "", "no symbol efadv_create_comp_cntr"},
		{"a device that is none of EFA", libs.Shim, "efadv", "efadv_create_comp_cntr"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newData(t, wire, Options{Library: libs.Shim, EFA: c.efa}, "WITHOUT", c.without)
			k, err := b.ctx.CreateCompCntr(CompCntrOptions{External: &CompCntrMemory{Comp: b.region().Bytes()[:8]}})
			if k != nil || !errors.Is(err, probe.ErrNotSupported) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v", err)
			}
			b.check(must(b.ctx.CreateCompCntr(CompCntrOptions{}))(t).Close()) // a counter in memory of the library still works
			if c.efa != old {
				return
			}
			_, err = b.pd.CreateQP(QPOptions{Type: QPTSRD, SendCQ: b.cq, RecvCQ: b.cq, Cap: dataCap})
			if !errors.Is(err, probe.ErrNotSupported) || !strings.Contains(err.Error(), "no symbol efadv_create_qp_ex") {
				t.Errorf("an SRD queue pair: %v", err)
			}
		})
	}
}
