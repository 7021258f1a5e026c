package xdp

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/flowtally/flowtally/internal/lab"
)

// ingressPrograms is the number of programs on the ingress of an end.
func ingressPrograms(t testing.TB, e *lab.End) (n int) {
	t.Helper()
	err := e.NS.Do(func() error {
		if xdpProgram(e.Index) != 0 {
			n++
		}
		chain, err := link.QueryPrograms(link.QueryOptions{Target: e.Index, Attach: ebpf.AttachTCXIngress})
		if err == nil {
			n += len(chain.Programs)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Every namespace has an lo with index 1. A process finds pins that a process in another namespace made for its lo. It must
// count on its own lo.
func TestPinnedLinkOfAnotherNamespaceIsNotTakenForOurs(t *testing.T) {
	for name, mode := range map[string]Mode{modeGeneric: ModeGeneric, modeTCX: ModeTCX} {
		t.Run(name, func(t *testing.T) {
			w := testWire(t)
			ends := [2]*lab.End{{NS: w.Near.NS, Name: "lo", Index: 1}, {NS: w.Far.NS, Name: "lo", Index: 1}}
			dp := openTest(t, Options{MaxRules: 64, PinDir: pinDir(t)})
			attach(t, dp, ends[0], AttachOptions{Mode: mode, Ingress: true})
			if err := dp.Close(); err != nil {
				t.Fatal(err)
			}
			dp = openTest(t, Options{MaxRules: 64, PinDir: dp.dir})
			if a := attach(t, dp, ends[1], AttachOptions{Mode: mode, Ingress: true}); !a[0].Fresh {
				t.Errorf("attachment %+v, want a fresh one", a[0])
			}
			if was, now := ingressPrograms(t, ends[0]), ingressPrograms(t, ends[1]); was != 0 || now != 1 {
				t.Errorf("%d programs in the first namespace and %d in the second, want 0 and 1", was, now)
			}
		})
	}
}

// The process dies when its record already names the dispatcher, and its TCX link is still pinned.
func TestKillInAMoveToADispatcherLeavesOneProgram(t *testing.T) {
	w := testWire(t)
	dp := openTest(t, Options{MaxRules: 64, PinDir: pinDir(t)})
	a := attach(t, dp, w.Near, AttachOptions{Mode: ModeTCX, Ingress: true})
	dp.meta.port(a[0].Port).setHook(site{hookKey: hookKey{a[0].Port, HookIngress}, component: true}, a[0].Index, modeDispatcher)
	dp.meta.clearLoaded()
	if err := dp.Close(); err != nil {
		t.Fatal(err)
	}
	w.Near.NS.Do(func() (err error) {
		dp, err = Open(Options{MaxRules: 64, PinDir: dp.dir})
		return err
	})
	t.Cleanup(func() { dp.Destroy() })
	if got, want := len(dp.Attachments()), ingressPrograms(t, w.Near); got != want {
		t.Errorf("%d attachments, and %d programs on the interface", got, want)
	}
	attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true})
	if n := ingressPrograms(t, w.Near); n != 1 {
		t.Errorf("%d programs on the interface, want 1", n)
	}
}

// Both hooks share the record of an interface. The interface is deleted and created again, and one hook is still the old one.
func TestDroppingADeletedHookKeepsTheRecordOfTheOther(t *testing.T) {
	w := testWire(t)
	dp := openTest(t, Options{MaxRules: 64, PinDir: pinDir(t)})
	a := attach(t, dp, w.Near, AttachOptions{Mode: ModeNative, Ingress: true, Egress: true})
	old := dp.hooks[hookKey{a[0].Port, HookEgress}]
	old.ifindex = a[0].Index + 1000 // as of the deleted interface
	dp.mu.Lock()
	dp.drop(old)
	dp.mu.Unlock()
	if err := dp.Close(); err != nil {
		t.Fatal(err)
	}
	dp = openTest(t, Options{MaxRules: 64, PinDir: dp.dir})
	if got := dp.Attachments(); len(got) != 1 || !got[0].Adopted || got[0].Index != a[0].Index {
		t.Errorf("adopted %+v, want the hook of interface %d", got, a[0].Index)
	}
}
