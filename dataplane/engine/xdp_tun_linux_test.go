package engine

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// TestDeviceWithoutEthernetCountsWhatItSends counts the packets that a tun device sends, and refuses a flow that none
// of its frames can match.
func TestDeviceWithoutEthernetCountsWhatItSends(t *testing.T) {
	need.BPF(t)
	need.Netns(t)
	need.TCX(t)
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		need.Missing(t, "tun", err.Error())
	}
	ns, err := lab.NewNetns("")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	tun, err := lab.NewTun(ns, lab.Unique("tun"), lab.TunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer tun.Close()
	if err := tun.AddAddr(netip.MustParsePrefix("192.0.2.1/24")); err != nil {
		t.Fatal(err)
	}
	cfg := dataplane.Config{
		Backend: "xdp", Interfaces: []dataplane.Interface{{Name: tun.Name}},
		Flows:  []flow.Flow{{Name: "sent", Match: match(t, "ipv4 dst 192.0.2.2 udp dport 1000"), Direction: flow.Egress}},
		Mirror: dataplane.MirrorConfig{Path: filepath.Join(t.TempDir(), "t.mirror"), Counters: 128, History: 1024},
		XDP:    dataplane.XDPConfig{PinDir: filepath.Join(need.BPFFS(t), "flowtally-test", lab.Unique("e")), MaxFlows: 1024},
		Poll:   dataplane.PollConfig{Period: time.Millisecond},
	}
	var e *Engine
	err = ns.Do(func() (err error) {
		e, err = New(context.Background(), cfg, Options{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	endWith(t, e)
	err = ns.Do(func() error {
		c, err := net.Dial("udp", "192.0.2.2:1000")
		if err != nil {
			return err
		}
		defer c.Close()
		for range 100 {
			if _, err := c.Write(make([]byte, 22)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	await(t, reader(t, cfg), "sent", backend.Pair{Packets: 100, Bytes: 100 * 50}) // IP, UDP and 22 bytes
	for _, text := range []string{"eth type 0x0800", "vlan ipv4"} {
		_, err := e.AddFlows(t.Context(), flow.Flow{Name: "never", Match: match(t, text), Direction: flow.Egress})
		if !errors.Is(err, dataplane.ErrInvalid) || !strings.Contains(err.Error(), "frames of "+tun.Name+" begin with IP") {
			t.Errorf("%s: got %v, want a refusal with the reason", text, err)
		}
	}
}
