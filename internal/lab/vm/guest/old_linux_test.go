//go:build vm

package guest

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/demo"
	"github.com/flowtally/flowtally/internal/lab/frame"
	"github.com/flowtally/flowtally/plugin"
	"github.com/flowtally/flowtally/probe"
)

// TestIngressAloneIsExactAndEgressIsRefused is for kernels below 6.6, through the process boundary: ingress is counted
// exactly in both modes, egress is refused with the reason, and the refusal leaves the other flows
// unchanged.
func TestIngressAloneIsExactAndEgressIsRefused(t *testing.T) {
	for _, mode := range []dataplane.Mode{dataplane.ModeNative, dataplane.ModeGeneric} {
		t.Run(string(mode), func(t *testing.T) {
			pair := newPair(t, "v0")
			fs := flows(t, "v0", "ipv4 src 198.51.100.0/25 udp dport 53", "ipv4 udp dport 53", "ipv6 tcp dport 443", "vlan id 7 ipv4")
			cfg := dataplane.Config{
				Instance: "old-" + string(mode), Backend: "xdp", Flows: fs,
				Interfaces: []dataplane.Interface{{Name: "v0", Mode: mode}},
			}
			t.Cleanup(func() { demo.Sweep(cfg.Instance) })
			svc, err := plugin.Launch(t.Context(), plugin.Options{Path: program(t, "flowtally-plugin"), Config: cfg, StartTimeout: patience})
			if err != nil {
				t.Fatal(err)
			}
			mustClose(t, svc)
			placements, err := svc.Placements(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range placements {
				if p.Source.String() != "xdp:v0/"+string(mode) {
					t.Errorf("%s: %+v", p.Flow.Name, p.Source)
				}
			}
			sender, err := pair.B.NewSender(traffic(fs), lab.SenderOptions{Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			mustClose(t, sender)
			if err := sender.Run(t.Context(), 10_000); err != nil {
				t.Fatal(err)
			}
			out := fs[0]
			out.Name, out.Direction = "out", flow.Egress
			_, err = svc.AddFlows(t.Context(), out)
			if !errors.Is(err, probe.ErrNotSupported) {
				t.Errorf("an egress flow: %v; want a refusal", err)
			} else if !strings.Contains(err.Error(), "TCX") {
				t.Errorf("%v: it does not say what is missing", err)
			}
			if err := sender.Run(t.Context(), 10_000); err != nil {
				t.Fatal(err)
			}
			settle, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := sender.Settle(settle); err != nil {
				t.Fatal(err)
			}
			got := counted(t, svc, fs)
			for i, sent := range sender.Sent() {
				if got[i].Packets != sent.Packets || got[i].Bytes != sent.Bytes || sent.Packets == 0 {
					t.Errorf("%s: sent %+v, counted %d packets, %d bytes", fs[i].Name, sent, got[i].Packets, got[i].Bytes)
				}
			}
		})
	}
}

// traffic is a stream for each of the flows of TestIngressAloneIsExactAndEgressIsRefused.
func traffic(fs []flow.Flow) []lab.Stream {
	eth := frame.Eth{Dst: [6]byte{2, 0, 0, 0, 0x0d, 1}, Src: [6]byte{2, 0, 0, 0, 0x0d, 2}}
	v4 := func(src string) frame.IPv4 {
		return frame.IPv4{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr("192.0.2.10")}
	}
	v6 := frame.IPv6{Src: netip.MustParseAddr("2001:db8::1"), Dst: netip.MustParseAddr("2001:db8::2")}
	dns := frame.UDP{Src: 40000, Dst: 53}
	https := frame.TCP{Src: 40000, Dst: 443}
	return []lab.Stream{
		{Name: fs[0].Name, Frames: [][]byte{frame.Sized(64, eth, v4("198.51.100.7"), dns), frame.Sized(700, eth, v4("198.51.100.8"), dns)}},
		{Name: fs[1].Name, Frames: [][]byte{frame.Sized(60, eth, v4("198.51.100.200"), dns)}},
		{Name: fs[2].Name, Frames: [][]byte{
			frame.Sized(1514, eth, v6, https),
			// The walk over extension headers, which the verifier of 6.1 refused once.
			frame.Sized(120, eth, v6, frame.Ext{Type: frame.HopByHop}, frame.Ext{Type: frame.Destination, Body: make([]byte, 14)}, https),
		}},
		{Name: fs[3].Name, Frames: [][]byte{frame.Sized(68, eth, frame.VLAN{ID: 7}, v4("198.51.100.7"), frame.UDP{Src: 1, Dst: 2})}},
	}
}

// check is a line of `flowtally doctor -o json`.
type check struct{ Object, Feature, Answer, Reason, Fix string }

// doctor runs it. Its status is 0 or, where something is missing, 3 under --strict only.
func doctor(t *testing.T) []check {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program(t, "flowtally"), "doctor", "-o", "json").Output()
	if err != nil {
		t.Fatalf("doctor: %v\n%s", err, out)
	}
	var report struct{ Checks []check }
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("doctor: %v\n%s", err, out)
	}
	return report.Checks
}

// TestDoctorBelow66NamesTheMissingFeature finds the kernel usable, and names the missing feature.
func TestDoctorBelow66NamesTheMissingFeature(t *testing.T) {
	found := 0
	for _, c := range doctor(t) {
		switch {
		case strings.HasPrefix(c.Object, "kernel "):
			found++
			if c.Answer != "yes" || !strings.Contains(c.Reason, "ingress only") {
				t.Errorf("%+v", c)
			}
		case c.Feature == "TCX":
			found++
			if c.Answer != "no" || c.Reason == "" || !strings.Contains(c.Fix, "6.6") {
				t.Errorf("%+v", c)
			}
		case c.Feature == "XDP programs":
			found++
			if c.Answer != "yes" {
				t.Errorf("%+v", c)
			}
		}
	}
	if found != 3 {
		t.Errorf("%d of 3 answers", found)
	}
}
