package xdp

import (
	"errors"
	"net"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/flowtally/flowtally/xdp/dispatcher"
)

// A dispatcher without pins is on the hook, so nobody can tell whether a program of an earlier process runs in it. A second program might
// count each packet again.
func TestNoSecondProgramBesideAnUnreadableDispatcher(t *testing.T) {
	w := testWire(t)
	dp := openTest(t, Options{MaxRules: 1024, PinDir: pinDir(t)})
	o := AttachOptions{Ingress: true, Beside: true, Dispatcher: true}
	k := hookKey{port: attach(t, dp, w.Near, o)[0].Port, hook: HookIngress}
	if err := dp.Detach(w.Near.Name); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dispatcher.Dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	p, err := dispatcher.Mould() // says that it has one component
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	err = w.Near.NS.Do(func() error {
		ifi, err := net.InterfaceByName(w.Near.Name)
		if err != nil {
			return err
		}
		foreign, err := link.AttachXDP(link.XDPOptions{Program: p, Interface: ifi.Index, Flags: link.XDPDriverMode})
		if err != nil {
			return err
		}
		defer foreign.Close()
		r := dp.meta.port(k.port)
		r.setHook(site{hookKey: k, component: true}, ifi.Index, modeDispatcher)
		if err := dp.adoptComponent(k, r); err == nil {
			t.Error("a slot was adopted that cannot be seen")
		}
		if a, err := dp.Attach(w.Near.Name, o); err == nil {
			t.Errorf("attached %+v beside a program that may count", a)
		}
		chain, err := link.QueryPrograms(link.QueryOptions{Target: ifi.Index, Attach: ebpf.AttachTCXIngress})
		if err == nil && len(chain.Programs) > 0 {
			t.Errorf("%d TCX programs", len(chain.Programs))
		}
		if err := dp.hooks[k].detach(); err == nil {
			t.Error("a program was detached that cannot be seen")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if a := attach(t, dp, w.Near, o); !a[0].Fresh || a[0].Mode == modeDispatcher {
		t.Errorf("behind the dispatcher: %+v", a[0])
	}
}
