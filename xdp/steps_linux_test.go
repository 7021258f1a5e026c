package xdp

import (
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/cilium/ebpf/features"

	"github.com/flowtally/flowtally/internal/lab/interp"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// A function's return costs some CPUs as much as five loads, and the program runs for every packet of the interface.
// TestPacketsOfGeneratedSetsTouchFewLines of internal/bench/xdprows follows the packets of many rules.
func TestOrdinaryPacketsOfOneFlowCallNoFunction(t *testing.T) {
	need.BPF(t)
	if v, err := features.LinuxVersionCode(); err != nil || v < 6<<16|10<<8 || runtime.GOARCH != "amd64" {
		need.Missing(t, "kernel:6.10", "the program calls the kernel for the number of the CPU, except on x86-64 since Linux 6.10")
	}
	dp := openTest(t, Options{MaxRules: 1024})
	mustAdd(t, dp, exact4(1, 2, 3, 4, mustCounter(t, dp, "a")))
	p, err := dp.Load(0, HookIngress, false)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()

	arp := make([]byte, 64)
	binary.BigEndian.PutUint16(arp[12:], 0x0806)
	for _, tt := range []struct {
		name  string
		frame []byte
		most  int // instructions; docs/classifier.md has the measured numbers
	}{
		{"match", udp4(1, 2, 3, 4, 64), 64},
		{"another address", udp4(1, 9, 3, 4, 64), 24},
		{"another port", udp4(1, 2, 3, 9, 64), 24},
		{"ARP", arp, 20},
	} {
		m, err := interp.Loaded(p.prog)
		if err != nil {
			t.Fatal(err)
		}
		verdict, c, err := m.Run(m.Packet(tt.frame))
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		t.Logf("%s: %d instructions, %d calls, %d lines of maps", tt.name, c.Instructions, c.Calls, c.Lines)
		if verdict != verdictPass || c.Calls != 0 || c.Instructions > tt.most {
			t.Errorf("%s: verdict %d, %d calls and %d instructions; want %d, none and at most %d",
				tt.name, verdict, c.Calls, c.Instructions, verdictPass, tt.most)
		}
	}
}
