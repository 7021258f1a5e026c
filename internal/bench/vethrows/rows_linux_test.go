package vethrows

import (
	"fmt"
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
	for name, mode := range map[string]xdp.Mode{"native": xdp.ModeNative, "auto": xdp.ModeAuto} {
		for _, drop := range []bool{false, true} {
			var open bench.Closers
			s, err := newSite(&open)
			if err != nil {
				t.Fatal(err)
			}
			side, counted, err := s.flows(drop, mode)
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
	for name, rules := range map[string]ruleset{"map": counterMap, "vmap": verdictMap, "linear": linear} {
		for _, verdict := range []string{"drop", "accept"} {
			var open bench.Closers
			s, err := newSite(&open)
			if err != nil {
				t.Fatal(err)
			}
			side, err := s.nft(rules, verdict, ports)
			if err == nil {
				err = onThread(func() error { _, err := side(t.Context(), 2*ports); return err })
			}
			if err != nil {
				t.Fatalf("%s, %s: %v", name, verdict, err)
			}
			counts, err := s.nftCounts()
			if err != nil {
				t.Fatal(err)
			}
			if len(counts) != ports {
				t.Errorf("%s, %s: %d counters", name, verdict, len(counts))
			}
			for _, n := range counts {
				if n != 2 {
					t.Fatalf("%s, %s: a counter has %d packets of 2", name, verdict, n)
				}
			}
			if err := open.Close(); err != nil {
				t.Error(err)
			}
		}
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

// nftCounts lists the packets of the named counters.
func (s *site) nftCounts() (counts []int, err error) {
	var out []byte
	err = s.ns.Do(func() (err error) {
		out, err = exec.Command("nft", "list", "counters").Output()
		return err
	})
	for line := range strings.Lines(string(out)) {
		var packets, bytes int
		if n, _ := fmt.Sscanf(strings.TrimSpace(line), "packets %d bytes %d", &packets, &bytes); n == 2 {
			counts = append(counts, packets)
		}
	}
	return counts, err
}
