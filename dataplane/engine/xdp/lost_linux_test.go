package xdp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// An interface of a pattern is deleted, and a new one gets its name before the watcher handles an event. The flow misses no packet
// then, unless another program had taken the hook before: that was an outage.
func TestAReplacedLinkIsAnOutageOnlyIfItsHookWasTaken(t *testing.T) {
	need.BPF(t)
	need.Netns(t)
	for name, taken := range map[string]bool{"a hook that is held": false, "a hook that another program has taken": true} {
		t.Run(name, func(t *testing.T) {
			b, w, f := onWire(t, "eth0")
			b.hooks.stop()
			b.hooks.stopped.Wait()
			b.hooks.config.Beside = []dataplane.Beside{dataplane.BesideRefuse}
			plug := func() *lab.Pair {
				t.Helper()
				p, err := lab.NewPair(w.Near.NS, w.Far.NS, "eth2", lab.Unique("f"), lab.PairOptions{})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { p.Close() })
				return p
			}
			refresh := func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.hooks.refresh() // as control calls do
			}
			first := plug()
			b.CheckAll()
			f = f.On("eth2")
			was := b.Now()
			if _, counted := b.CompleteSince(f); !counted {
				t.Fatal("eth2 is not counted on")
			}
			if taken {
				foreign := take(t, b, first.A)
				defer foreign.Close()
				refresh()
			}
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			plug()
			refresh()
			b.CheckAll()
			last, open := b.Outage(f)
			if _, counted := b.CompleteSince(f); !counted || open || last.After(was) != taken {
				t.Errorf("an outage ended at %d, and it was %d before; an outage is under way: %t; counted: %t", last, was, open, counted)
			}
		})
	}
}

// asked is a context that calls f each time somebody asks for its error. Building trees asks often.
type asked struct {
	context.Context
	f func()
}

func (a asked) Err() error {
	a.f()
	return a.Context.Err()
}

// isFree reports whether the lock is free, or soon will be: a look at the hooks holds it for a moment.
func isFree(mu *sync.Mutex) bool {
	for range 100 {
		if mu.TryLock() {
			mu.Unlock()
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return false
}

// Building the trees of many flows takes long. A hook that is lost meanwhile must be attached again before they are ready.
func TestALostHookIsTakenWhileTreesAreBuilt(t *testing.T) {
	need.BPF(t)
	need.Netns(t)
	b, w, f := onWire(t, "eth0")
	rng := rand.New(rand.NewPCG(1, 1))
	var many []backend.Placed
	for i := range 50 {
		ip := &flow.IPv4{}
		for n := range 4 {
			ip.Src.Mask[n], ip.Dst.Mask[n] = byte(rng.Uint32()), byte(rng.Uint32())
			ip.Src.Addr[n], ip.Dst.Addr[n] = byte(rng.Uint32())&ip.Src.Mask[n], byte(rng.Uint32())&ip.Dst.Mask[n]
		}
		many = append(many, backend.Placed{Flow: flow.Flow{Name: fmt.Sprint("m", i), Match: flow.Match{IPv4: ip}}, Order: uint32(i) + 1})
	}

	was := b.Now()
	tested := false
	_, err := b.Install(asked{t.Context(), func() {
		if tested || !bytes.Contains(debug.Stack(), []byte("xdp/tree.")) {
			return
		}
		if !isFree(&b.mu) { // the caller holds it, for a change of the trees in place
			return
		}
		tested = true
		if err := w.Near.NS.Do(func() error { return detach("eth0") }); err != nil {
			t.Error(err)
		}
		lab.Eventually(t, "the hook taken again", func() bool {
			last, open := b.Outage(f)
			return !open && last.After(was)
		})
	}}, many)
	if err != nil || !tested {
		t.Errorf("installing %d flows: %v; the hook was lost meanwhile: %t", len(many), err, tested)
	}
}

// take detaches our program from an interface and attaches another one.
func take(t *testing.T, b *Backend, e *lab.End) (foreign link.Link) {
	t.Helper()
	if err := e.NS.Do(func() error {
		if err := detach(e.Name); err != nil {
			return err
		}
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: "foreign", Type: ebpf.XDP, License: "GPL", AttachType: ebpf.AttachXDP,
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
		})
		if err != nil {
			return err
		}
		defer p.Close()
		foreign, err = link.AttachXDP(link.XDPOptions{Program: p, Interface: e.Index})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return foreign
}

// detach takes our program off the ingress of an interface, as an operator might. It looks for the program's ID, because an
// interface in another network namespace may have the same index.
func detach(ifname string) error {
	i, err := netlink.LinkByName(ifname)
	if err != nil {
		return err
	}
	index := i.Attrs().Index
	if chain, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: ebpf.AttachTCXIngress}); err == nil && len(chain.Programs) > 0 {
		id, _ := chain.Programs[0].LinkID()
		l, err := link.NewFromID(id)
		if err != nil {
			return err
		}
		return errors.Join(l.Detach(), l.Close())
	}

	if x := i.Attrs().Xdp; x != nil {
		it := new(link.Iterator)
		defer it.Close()
		for it.Next() {
			info, err := it.Link.Info()
			if err == nil && info.XDP() != nil && int(info.XDP().Ifindex) == index && uint32(info.Program) == x.ProgId {
				return it.Link.Detach()
			}
		}
	}
	return fmt.Errorf("%s has no program: %w", ifname, os.ErrNotExist)
}
