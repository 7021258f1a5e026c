//go:build cgo

package ibv

import (
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/probe"
)

// The tests below are the hardware counters' part of libfabric's unit tests: all 17 cases of
// prov/efa/test/efa_unit_test_cntr.c (commit af8ddbe9), each under its name there. The originals
// mock the verbs and check the provider's calls and results. Here the calls go to the shim, which
// reports the verbs that were called, and to the kernel, which holds the values. The originals create
// counters by efadv_create_comp_cntr without memory of the caller's, as these tests do.

// libfabricCase is one test case of libfabric.
type libfabricCase struct {
	name  string // without test_
	env   []string
	shows func(t *testing.T, l *libfabric)
}

type libfabric struct {
	*bench
	statistics string
}

// openCntr is efa_hw_cntr_open.
func (l *libfabric) openCntr(o CompCntrOptions) (*CompCntr, error) {
	o.External = &CompCntrMemory{}
	return l.ctx.CreateCompCntr(o)
}

func (l *libfabric) cntr() *CompCntr {
	l.t.Helper()
	k := must(l.openCntr(CompCntrOptions{}))(l.t)
	l.closes(k)
	return k
}

// calls returns the verbs that fn called, with the number of calls.
func (l *libfabric) calls(fn func()) ibvtest.Statistics {
	l.t.Helper()
	before := must(ibvtest.ReadStatistics(l.statistics))(l.t)
	fn()
	calls := must(ibvtest.ReadStatistics(l.statistics))(l.t).Sub(before)
	maps.DeleteFunc(calls, func(name string, _ uint64) bool { return strings.ToUpper(name) == name }) // what the kernel calls them
	return calls
}

// only wants fn to call one verb, once, and no other but these.
func (l *libfabric) only(verb string, fn func(), but ...string) {
	l.t.Helper()
	got := l.calls(fn)
	for name, n := range got {
		if name == verb && n != 1 || name != verb && !slices.Contains(but, name) {
			l.t.Errorf("called %s %d times", name, n)
		}
	}
	if got[verb] == 0 {
		l.t.Errorf("%s was not called", verb)
	}
}

var libfabricCases = []libfabricCase{
	{"efa_hw_cntr_open_unsupported_type_bytes", nil, func(t *testing.T, l *libfabric) {
		k, err := l.openCntr(CompCntrOptions{Type: CompCntrTypeBytes})
		if k != nil || !errors.Is(err, syscall.ENOTSUP) || !errors.Is(err, probe.ErrNotSupported) {
			t.Errorf("%v, %v", k, err)
		}
	}},
	{"efa_hw_cntr_open_max_cntr_value_exceeded", nil, func(t *testing.T, l *libfabric) {
		caps := must(l.ctx.QueryCompCntrCaps())(t)
		calls := l.calls(func() {
			for _, max := range []uint64{math.MaxUint64, caps.MaxValue + 1} {
				if k, err := l.openCntr(CompCntrOptions{MaxValue: max}); k != nil || !errors.Is(err, probe.ErrNotSupported) {
					t.Errorf("up to %d: %v, %v", max, k, err)
				}
			}
		})
		if calls["efadv_create_comp_cntr"] != 0 {
			t.Error("a counter was made")
		}
		l.check(must(l.openCntr(CompCntrOptions{MaxValue: caps.MaxValue}))(t).Close())
	}},
	{"efa_hw_cntr_open_ibv_fail", []string{"FAIL", "efadv_create_comp_cntr=ENOTSUP"}, func(t *testing.T, l *libfabric) {
		k, err := l.openCntr(CompCntrOptions{})
		if k != nil || !errors.Is(err, syscall.ENOTSUP) {
			t.Errorf("%v, %v", k, err)
		}
		// No leak: no object holds the context, and newData's cleanup closes it.
		if busy := l.ctx.listHolders(); strings.Contains(busy, "counter") {
			t.Errorf("the context is held by %s", busy)
		}
	}},
	{"efa_hw_cntr_add", nil, func(t *testing.T, l *libfabric) {
		k := l.cntr()
		l.only("ibv_inc_comp_cntr", func() { l.check(k.Inc(1)) })
		l.counts(k, 1, 0)
	}},
	{"efa_hw_cntr_adderr", nil, func(t *testing.T, l *libfabric) {
		k := l.cntr()
		l.only("ibv_inc_err_comp_cntr", func() { l.check(k.IncErr(1)) })
		l.counts(k, 0, 1)
	}},
	{"efa_hw_cntr_set", nil, func(t *testing.T, l *libfabric) {
		k := l.cntr()
		l.only("ibv_set_comp_cntr", func() { l.check(k.Set(1)) })
		l.counts(k, 1, 0)
	}},
	{"efa_hw_cntr_seterr", nil, func(t *testing.T, l *libfabric) {
		k := l.cntr()
		l.only("ibv_set_err_comp_cntr", func() { l.check(k.SetErr(1)) })
		l.counts(k, 0, 1)
	}},
	{"efa_hw_cntr_read", nil, func(t *testing.T, l *libfabric) {
		k := l.cntr()
		l.check(k.Set(100))
		l.only("ibv_read_comp_cntr", func() {
			if got := must(k.Read())(t); got != 100 {
				t.Errorf("it reads %d", got)
			}
		})
	}},
	{"efa_hw_cntr_readerr", nil, func(t *testing.T, l *libfabric) {
		k := l.cntr()
		l.check(k.SetErr(100))
		l.only("ibv_read_err_comp_cntr", func() {
			if got := must(k.ReadErr())(t); got != 100 {
				t.Errorf("it reads %d", got)
			}
		})
	}},
	// Waiting is the mirror's: shm.Reader.Wait has libfabric's semantics on the two values.
	{"efa_hw_cntr_wait_success", nil, shownIn("../shm/wait_test.go", `name: "reached already"`)},
	// The original refuses to wait for a counter that was opened without a wait object. A mirror has
	// no such mode: a reader that cannot be woken polls once per cycle, and Wakeable reports that
	// and the reason.
	{"efa_hw_cntr_wait_returns_einval_with_wait_none", nil, shownIn("../shm/wait_test.go", "func TestWaitRefusesAClosedReaderAndAnUnknownHandle(", "Wakeable()")},
	// Wait objects do not exist either: the verb's flags are reserved, and every flag is refused.
	{"efa_hw_cntr_open_returns_eopnotsupp_with_wait_fd", nil, refusesFlags(1 << 0)},
	{"efa_hw_cntr_open_returns_eopnotsupp_with_wait_yield", nil, refusesFlags(1 << 1)},
	{"efa_hw_cntr_bind_ep", nil, func(t *testing.T, l *libfabric) {
		k := l.cntr()
		l.only(attachVerb, func() {
			q := l.queuePairAttached(t, k, QPAttachCompCntrOpSend)
			if now := must(q.Query(QPAttrState))(t); now.State != QPSRTS {
				t.Errorf("the queue pair is in %v", now.State)
			}
		}, "ibv_create_qp", "ibv_modify_qp", "ibv_query_qp", "ibv_query_gid")
	}},
	{"efa_hw_cntr_bind_ep_attach_fail", []string{"COMP_CNTR_OPS", "send,recv,rdma_read,rdma_write"}, func(t *testing.T, l *libfabric) {
		k := l.cntr()
		q := l.queuePair(QPTRC)
		l.toInit(q)
		if err := q.AttachCompCntr(k, QPAttachCompCntrOpRemoteRDMARead); !errors.Is(err, probe.ErrNotSupported) {
			t.Errorf("attached: %v", err)
		}
		if now := must(q.Query(QPAttrState))(t); now.State != QPSInit {
			t.Errorf("the queue pair is in %v", now.State)
		}
		l.check(k.Close()) // no object holds it
	}},
	{"efa_cntr_open_uses_hw_cntr", nil, func(t *testing.T, l *libfabric) {
		calls := l.calls(func() { l.check(must(l.ctx.CreateCompCntr(CompCntrOptions{}))(t).Close()) })
		if calls["ibv_create_comp_cntr"] != 1 || calls["ibv_destroy_comp_cntr"] != 1 || len(calls) != 2 {
			t.Errorf("called %v", calls)
		}
	}},
	{"efa_hw_cntr_open_use_hw_cntr_disabled", []string{"WITHOUT", "comp_cntr"}, func(t *testing.T, l *libfabric) {
		k, err := l.openCntr(CompCntrOptions{})
		if k != nil || !errors.Is(err, syscall.EOPNOTSUPP) {
			t.Errorf("%v, %v", k, err)
		}
	}},
}

// refusesFlags wants a flag of ibv_create_comp_cntr not to be taken.
func refusesFlags(flags uint32) func(*testing.T, *libfabric) {
	return func(t *testing.T, l *libfabric) {
		if h, errno := l.lib.v.createCompCntr(l.ctx.h, 0, CompCntrTypeWRs, flags); errno == 0 {
			t.Errorf("taken: %#x", h)
		}
	}
}

// shownIn skips the wait itself, which this package does not implement, and checks that the named
// test contains these texts.
func shownIn(file string, texts ...string) func(*testing.T, *libfabric) {
	return func(t *testing.T, _ *libfabric) {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range texts {
			if !strings.Contains(string(src), text) {
				t.Errorf("%s has no %s any more", file, text)
			}
		}
	}
}

// queuePairAttached is fi_enable of an endpoint with a counter bound to it.
func (l *libfabric) queuePairAttached(t *testing.T, k *CompCntr, ops CompCntrOps) *QP {
	t.Helper()
	q := l.queuePair(QPTRC)
	l.toInit(q)
	l.check(q.AttachCompCntr(k, ops))
	l.toRTS(q, q)
	return q
}

func TestCompCntrServesEveryCallOfLibfabric(t *testing.T) {
	if len(libfabricCases) != 17 {
		t.Fatalf("%d cases", len(libfabricCases))
	}
	libs, wire := softLibs(t), newWire(t)
	for _, c := range libfabricCases {
		t.Run(c.name, func(t *testing.T) {
			statistics := filepath.Join(t.TempDir(), "statistics")
			env := append([]string{"STATISTICS", statistics}, c.env...)
			c.shows(t, &libfabric{newData(t, wire, Options{Library: libs.Shim, EFA: libs.Shim}, env...), statistics})
		})
	}
}
