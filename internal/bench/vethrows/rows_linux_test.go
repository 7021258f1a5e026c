package vethrows

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/xdp"
)

// Each packet of the sender passes the hook once, where it drops and where it counts. Generic XDP does not see packets
// that another program redirected.
func TestFlowsCountEachPacketOnce(t *testing.T) {
	need.BPF(t)
	need.Netns(t)
	type hook struct {
		mode xdp.Mode
		key  key
	}
	for name, h := range map[string]hook{
		"native":           {xdp.ModeNative, byPort},
		"auto":             {xdp.ModeAuto, byPort},
		"native by source": {xdp.ModeNative, bySource},
	} {
		for _, drop := range []bool{false, true} {
			var open bench.Closers
			s, err := newSite(&open)
			if err != nil {
				t.Fatal(err)
			}
			side, counted, err := s.flows(h.key.match(), drop, h.mode)
			if err == nil {
				err = onThread(func() error { _, err := exact(side, counted)(t.Context(), 3*ports); return err })
			}
			if err != nil {
				t.Errorf("%s, drop %t: %v", name, drop, err)
			}
			for i := range counted.ids {
				v := make([]xdp.Pair, 1)
				if err := counted.rules.Read(counted.ids[i:i+1], v); err != nil || v[0].Packets != 3 {
					t.Fatalf("%s: flow %d counted %d packets of 3, %v", name, i, v[0].Packets, err)
				}
			}
			if err := open.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestNFTCountsEachPacketByItsPort(t *testing.T) {
	need.BPF(t)
	need.Netns(t)
	if _, err := exec.LookPath("nft"); err != nil {
		t.Log(err) // make bench installs it
		return
	}
	tables := map[string]ruleset{
		"map":    counterMap,
		"concat": concatMap,
		"set":    counterSet,
		"vmap":   verdictMap,
		"linear": linear,
	}
	for name, rules := range tables {
		for _, verdict := range []string{"drop", "accept"} {
			var open bench.Closers
			s, err := newSite(&open)
			if err != nil {
				t.Fatal(err)
			}
			err = onThread(func() error { _, err := s.counting(rules, verdict); return err })
			if err != nil {
				t.Errorf("%s, %s: %v", name, verdict, err)
			}
			if err := open.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// A table that counts some ports only is refused before a time is taken.
func TestNFTThatMissesPacketsIsRefused(t *testing.T) {
	need.BPF(t)
	need.Netns(t)
	if _, err := exec.LookPath("nft"); err != nil {
		t.Log(err) // make bench installs it
		return
	}
	missing := func(ifname, verdict string, n int) string {
		return table(ifname, counters(n), `udp dport 1000-1998 counter name "c1000"`+"\n"+verdict)
	}
	var open bench.Closers
	defer open.Close()
	s, err := newSite(&open)
	if err != nil {
		t.Fatal(err)
	}
	err = onThread(func() error { _, err := s.counting(missing, "drop"); return err })
	if err == nil || !strings.Contains(err.Error(), "2 were sent to each port") {
		t.Errorf("got %v", err)
	}
}

// onThread runs f on a thread that ends with it.
func onThread(f func() error) (err error) {
	cpus, err := bench.CPUs()
	if err != nil {
		return err
	}
	if perr := bench.Pinned(cpus[0], func() { err = f() }); perr != nil {
		return perr
	}
	return err
}
