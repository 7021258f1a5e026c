package xdp

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab"
)

// neighbour attaches a program of another owner, which returns verdict, to a TCX hook.
func neighbour(t testing.TB, e *lab.End, at ebpf.AttachType, verdict int32, place link.Anchor) link.Link {
	t.Helper()
	l, err := e.AttachNeighbour(at, verdict, place)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// without runs fn with a capability less. It is for a thread that fn does not leave.
func without(capability uint, fn func() error) error {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var all, fewer [2]unix.CapUserData
	if err := unix.Capget(&h, &all[0]); err != nil {
		return fmt.Errorf("reading capabilities: %w", err)
	}
	fewer = all
	fewer[capability/32].Effective &^= 1 << (capability % 32)
	if err := unix.Capset(&h, &fewer[0]); err != nil {
		return fmt.Errorf("setting capabilities: %w", err)
	}
	defer unix.Capset(&h, &all[0])
	return fn()
}

// Without CAP_SYS_ADMIN, a process learns the ids of these programs and not their names.
func TestProgramsBeforeOursAreListedInOrder(t *testing.T) {
	for _, c := range []struct {
		last bool
		want []int // of those attached at the head and at the tail before us, at the head and at the tail after us
	}{
		{last: false, want: []int{2}},
		{last: true, want: []int{2, 0, 1}},
	} {
		t.Run(fmt.Sprintf("last %t", c.last), func(t *testing.T) {
			w := testWire(t)
			dp := openTest(t, Options{MaxRules: 1024})
			head, tail := link.Head(), link.Tail()
			var all []Neighbour
			add := func(place link.Anchor) {
				info, err := neighbour(t, w.Near, ebpf.AttachTCXEgress, -1, place).Info()
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, Neighbour{Program: uint32(info.Program), Link: uint32(info.ID), Name: "neighbour"})
			}
			add(head)
			add(tail)
			attach(t, dp, w.Near, AttachOptions{Egress: true, Last: c.last})
			add(head)
			add(tail)
			var named, unnamed []Neighbour
			err := w.Near.NS.Do(func() (err error) {
				if named, err = dp.Before(w.Near.Name, HookEgress); err != nil {
					return err
				}
				return without(unix.CAP_SYS_ADMIN, func() error {
					unnamed, err = dp.Before(w.Near.Name, HookEgress)
					return err
				})
			})
			if err != nil {
				t.Fatal(err)
			}
			var want, bare []Neighbour
			for _, i := range c.want {
				want = append(want, all[i])
				bare = append(bare, Neighbour{Program: all[i].Program, Link: all[i].Link})
			}
			if fmt.Sprint(named) != fmt.Sprint(want) {
				t.Errorf("got %v, want %v", named, want)
			}
			if fmt.Sprint(unnamed) != fmt.Sprint(bare) {
				t.Errorf("without CAP_SYS_ADMIN: got %v, want %v", unnamed, bare)
			}
		})
	}
}
