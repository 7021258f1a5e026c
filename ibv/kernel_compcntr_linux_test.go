//go:build releases && cgo

package ibv

import (
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/rdmacore"
	"github.com/flowtally/flowtally/probe"
)

// groupEnv names the environment of the statements that a process is to run: the variables as statement.env has them.
const groupEnv = "FLOWTALLY_STATEMENTS"

var compCntrStatements = slices.Concat(draftStatements, mergedAttachStatements, mergedCreateStatements, capsStatements)

// As TestCompCntrsFollowTheirManualPages, but over the real libraries of each release and the EFA of the uverbs kernel
// in software, with SRD in place of RC. Releases before 65 must report missing completion counters.
func TestKernelCompCntrsFollowTheirManualPages(t *testing.T) {
	if len(compCntrStatements) != 47 {
		t.Fatalf("%d statements", len(compCntrStatements))
	}
	all := environs(compCntrStatements, efaMethods)
	old := rdmacore.Suites()[:2]
	overKernels(t, all[:1], old, func(t *testing.T) {
		if !must(Load(Options{}))(t).has("ibv_create_comp_cntr") {
			lacksCompCntrs(t)
			return
		}
		runStatements(t, compCntrStatements, newEFA)
	})
	if os.Getenv(insideEnv) == "" {
		overKernels(t, all, []string{rdmacore.Suites()[2]}, nil)
	}
}

// environs are the environments of the kernels that the statements need, each with its name in groupEnv.
func environs(statements []statement, methods *strings.Replacer) (all [][]string) {
	for _, s := range statements {
		e := []string{groupEnv + "=" + group(s)}
		for i := 0; i < len(s.env); i += 2 {
			e = append(e, "FLOWTALLY_IBVTEST_"+s.env[i]+"="+methods.Replace(s.env[i+1]))
		}
		if !slices.ContainsFunc(all, func(o []string) bool { return slices.Equal(o, e) }) {
			all = append(all, e)
		}
	}
	return all
}

// runStatements shows the statements whose environment this process has.
func runStatements(t *testing.T, statements []statement, bench func(*testing.T) *bench) {
	for _, s := range statements {
		if group(s) != os.Getenv(groupEnv) || userSpace[s.at] != "" {
			continue
		}
		t.Run(s.at, func(t *testing.T) {
			t.Log(s.says)
			if other, ok := efaStatements[s.at]; ok {
				t.Logf("on EFA: %s", other.says)
				s = other
			}
			s.shows(t, bench(t))
		})
	}
}

func group(s statement) string { return strings.Join(s.env, " ") }

// efaMethods has the kernel's methods in place of verbs. libibverbs reads a counter without the kernel, and sets and
// increments both of its values by one method.
var efaMethods = strings.NewReplacer(
	"ibv_qp_attach_comp_cntr", "QP_ATTACH_COMP_CNTR", "ibv_create_comp_cntr", "COMP_CNTR_CREATE",
	"ibv_query_comp_cntr_caps", "QUERY_COMP_CNTR_CAPS", "ibv_destroy_comp_cntr", "COMP_CNTR_DESTROY",
	"ibv_set_comp_cntr=EIO", "COMP_CNTR_MODIFY=EIO@1-1", "ibv_set_err_comp_cntr=EAGAIN", "COMP_CNTR_MODIFY=EAGAIN@2-2",
	"ibv_inc_comp_cntr=EPERM", "COMP_CNTR_MODIFY=EPERM@3-3", "ibv_inc_err_comp_cntr=EINTR", "COMP_CNTR_MODIFY=EINTR@4-4",
	"ibv_read_comp_cntr=ENOMEM,", "", "ibv_read_err_comp_cntr=EFAULT,", "",
)

// efaStatements are the statements that an EFA of rdma-core 65 meets in another way than a ConnectX behind the shim. says is the
// difference.
var efaStatements = map[string]statement{
	"003:102": {says: "the kernel looks the counter's handle up among those of the queue pair's context: ENOENT or EINVAL by the object that has the number there",
		shows: func(t *testing.T, b *bench) {
			mine := b.ctx
			b.open()
			k := b.compCntr()
			b.ctx = mine
			q := b.pair()
			err := q.AttachCompCntr(k, QPAttachCompCntrOpSend)
			if wantErrno(t, err, attachVerb, syscall.EINVAL); !strings.Contains(err.Error(), "another context") {
				t.Errorf("the error does not say why: %v", err)
			}
			if errno := attachErrno(q, k, 0, QPAttachCompCntrOpSend); errno != syscall.EINVAL && errno != syscall.ENOENT {
				t.Errorf("the library answers %v", errno)
			}
		}},
	"create:46": {says: "libefa posts no request without a completion",
		shows: func(t *testing.T, b *bench) {
			k, m := b.compCntr(), b.region()
			x, _ := b.rc(func(x, _ *QP) { b.check(x.AttachCompCntr(k, QPAttachCompCntrOpRDMAWrite)) })
			silent := write(m)
			silent.Flags, silent.AH, silent.RemoteQPN, silent.RemoteQKey = 0, b.ah, b.peers[x].number, testQKey
			if n, err := x.PostSend([]SendWR{silent}); n != 0 || !errors.Is(err, syscall.EINVAL) {
				t.Errorf("posted %d: %v", n, err)
			}
			b.post(x, write(m), write(m))
			b.succeed(2) // the counter is an extension of the queue
			b.counts(k, 2, 0)
		}},
	"create:54": {says: "an error leaves an SRD queue pair in RTS, and the requests behind it succeed",
		shows: func(t *testing.T, b *bench) {
			k, m := b.compCntr(), b.region()
			x, _ := b.rc(func(x, _ *QP) { b.check(x.AttachCompCntr(k, QPAttachCompCntrOpRDMAWrite)) })
			wrong := write(m)
			wrong.RKey += 0x1000
			b.post(x, repeat(4, write(m))...)
			b.post(x, wrong, write(m), write(m))
			want := []WCStatus{0, 0, 0, 0, WCRemAccessErr, 0, 0}
			for i, wc := range b.completions(7) {
				if wc.Status != want[i] {
					t.Errorf("completion %d: %v, want %v", i, wc.Status, want[i])
				}
			}
			b.counts(k, 6, 1)
			b.check(x.Modify(QPAttr{State: QPSErr}, QPAttrState))
		}},
	"create:133": {says: "reading is a load from memory, and cannot fail",
		shows: func(t *testing.T, b *bench) {
			k := b.compCntr()
			for _, c := range []struct {
				err   error
				verb  string
				errno syscall.Errno
			}{
				{k.Set(1), "ibv_set_comp_cntr", syscall.EIO}, {k.SetErr(1), "ibv_set_err_comp_cntr", syscall.EAGAIN},
				{k.Inc(1), "ibv_inc_comp_cntr", syscall.EPERM}, {k.IncErr(1), "ibv_inc_err_comp_cntr", syscall.EINTR},
				{k.Close(), "ibv_destroy_comp_cntr", syscall.EBUSY},
			} {
				wantErrno(t, c.err, c.verb, c.errno)
			}
			b.counts(k, 0, 0)
			b.check(k.Close()) // after EBUSY the call can be repeated
		}},
}

// lacksCompCntrs: libraries before rdma-core 65 refuse completion counters, and name the reason.
func lacksCompCntrs(t *testing.T) {
	b := newEFA(t)
	_, err := b.ctx.QueryCompCntrCaps()
	wantErrno(t, err, "ibv_query_comp_cntr_caps", syscall.ENOSYS)
	_, err = b.ctx.CreateCompCntr(CompCntrOptions{})
	if wantErrno(t, err, "ibv_create_comp_cntr", syscall.ENOSYS); !errors.Is(err, probe.ErrNotSupported) {
		t.Errorf("%v does not answer a probe", err)
	}
	_, err = b.ctx.CreateCompCntr(CompCntrOptions{External: &CompCntrMemory{Comp: b.region().Bytes()[:8]}})
	var u *probe.UnsupportedError
	if !errors.As(err, &u) || !strings.Contains(u.Reason, "no symbol efadv_create_comp_cntr") || !strings.Contains(u.Fix, "65") {
		t.Errorf("in memory of ours: %v: %+v", err, u)
	}
	t.Log(err)
}
