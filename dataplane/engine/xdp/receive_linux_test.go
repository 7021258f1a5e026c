package xdp

import (
	"testing"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
)

func receiveOfEnd(t *testing.T, e *lab.End) (r receive) {
	t.Helper()
	err := e.NS.Do(func() (err error) {
		r, err = receiveOf(e.Name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestReceiveOfFollowsTheOffload(t *testing.T) {
	need.Netns(t)
	w, err := lab.NewWire(lab.WireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, on := range []bool{true, false, true} {
		if err := w.Near.SetOffload(on, lab.RxVLAN); err != nil {
			t.Fatal(err)
		}
		if got, want := receiveOfEnd(t, w.Near), (receive{TakesTags: on, Veth: true}); got != want {
			t.Errorf("rx-vlan-offload %t: got %+v, want %+v", on, got, want)
		}
	}
	lo := &lab.End{NS: w.Near.NS, Name: "lo"}
	if got, want := receiveOfEnd(t, lo), (receive{Fixed: true}); got != want {
		t.Errorf("lo: got %+v, want %+v", got, want)
	}
}
