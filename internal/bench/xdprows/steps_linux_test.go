package xdprows

import (
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"

	"github.com/flowtally/flowtally/internal/lab/classbench"
	"github.com/flowtally/flowtally/internal/lab/interp"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/xdp"
)

// frameOf returns the frame of a packet.
func frameOf(p classbench.Packet) []byte {
	b := frame(0)
	b[23] = p.Proto
	binary.BigEndian.PutUint32(b[26:], p.Src)
	binary.BigEndian.PutUint32(b[30:], p.Dst)
	binary.BigEndian.PutUint16(b[34:], p.SrcPort)
	binary.BigEndian.PutUint16(b[36:], p.DstPort)
	return b
}

// linesOfCounter are the lines of a counter and its mark, of which the model knows nothing.
const linesOfCounter = 2

// The test prints the means in the table of docs/classifier.md. The model of xdp, which "flowtally explain --classifier" prints, says
// the same number of lines for each packet.
func TestPacketsOfGeneratedSetsTouchFewLines(t *testing.T) {
	need.BPF(t)
	if v, err := features.LinuxVersionCode(); err != nil || v < 6<<16|10<<8 || runtime.GOARCH != "amd64" {
		need.Missing(t, "kernel:6.10", "the program calls the kernel for the number of the CPU, except on x86-64 since Linux 6.10")
	}
	const packets = 1000
	family := func(f classbench.Family, n int) func() input {
		return func() input { return ofFamily(f, n) }
	}
	for _, tt := range []struct {
		name     string
		generate func() input
		lines    float64 // mean, at most
		inlined  bool    // no packet of the set calls a function
	}{
		{"1,000 rules over 24 masks", func() input { return ofMasks(1000, 24) }, 12, true},
		{"16,000 rules over 200 masks", func() input { return ofMasks(16000, 200) }, 7.6, true},
		{"ClassBench acl 1,000", family(classbench.ACL, 1000), 14, false},
		{"ClassBench fw 1,000", family(classbench.FW, 1000), 30, false},
		{"ClassBench ipc 1,000", family(classbench.IPC, 1000), 14, false},
		{"ClassBench acl 10,000", family(classbench.ACL, 10_000), 30, false},
		{"ClassBench fw 10,000", family(classbench.FW, 10_000), 60, false},
		{"ClassBench ipc 10,000", family(classbench.IPC, 10_000), 40, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := tt.generate()
			s, err := newSet(in.rules, in.packets)
			if err != nil {
				t.Fatal(err)
			}
			defer s.close()
			m, err := interp.Loaded(s.ours.Programs["flowtally_xdp"])
			if err != nil {
				t.Fatal(err)
			}

			list := s.rules.Rules()
			for i := range list {
				list[i].Counter = 0 // the model has only this one
			}
			model, err := xdp.NewModel(list, s.rules.Stats().MaxRules, 0, true)
			if err != nil {
				t.Fatal(err)
			}
			model.Hashed(func(mask xdp.Key, rules int) {
				t.Errorf("a mask of %d rules is hashed: its lines differ by the secret", rules)
			})

			buffer := make([]byte, len(frame(0)))
			context := m.Packet(buffer)
			var instructions, calls, lines int
			for _, p := range in.packets[:packets] {
				copy(buffer, frameOf(p))
				_, c, err := m.Run(context)
				if err != nil {
					t.Fatal(err)
				}
				instructions += c.Instructions
				calls += c.Calls
				lines += c.Lines

				k := keyOf(p)
				if _, _, w := model.Find(&k); w.Lines+linesOfCounter != c.Lines {
					t.Fatalf("%+v: %d lines, and the model says %d and those of the counter", p, c.Lines, w.Lines)
				}
			}

			mean := func(sum int) float64 { return float64(sum) / packets }
			t.Logf("a packet: %.1f instructions, %.2f calls, %.1f lines", mean(instructions), mean(calls), mean(lines))
			if mean(lines) > tt.lines {
				t.Errorf("%.1f lines a packet, want at most %.1f", mean(lines), tt.lines)
			}
			if tt.inlined && calls != 0 {
				t.Errorf("%d calls in %d packets", calls, packets)
			}
		})
	}
}

// The rows xdp.hand compare times, with a bound of 1.5. Instructions are the same on every processor, but not all take as long.
func TestOneFlowStaysNearAProgramWrittenByHand(t *testing.T) {
	need.BPF(t)
	if v, err := features.LinuxVersionCode(); err != nil || v < 6<<16|10<<8 || runtime.GOARCH != "amd64" {
		need.Missing(t, "kernel:6.10", "the program calls the kernel for the number of the CPU, except on x86-64 since Linux 6.10")
	}
	r, err := newRigOf(handRule)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	spec, err := loadHand()
	if err != nil {
		t.Fatal(err)
	}
	hand, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatal(err)
	}
	defer hand.Close()

	steps := func(p *ebpf.Program, frame []byte) int {
		m, err := interp.Loaded(p)
		if err != nil {
			t.Fatal(err)
		}
		_, c, err := m.Run(m.Packet(frame))
		if err != nil {
			t.Fatal(err)
		}
		return c.Instructions
	}
	for name, frame := range map[string][]byte{"match": frame(0), "miss": missing(), "ARP": arp()} {
		empty := steps(r.coll.Programs["bench_empty"], frame)
		ours, byHand := steps(r.coll.Programs[attachedForOne], frame), steps(hand.Programs["hand"], frame)
		t.Logf("%s: %d instructions, by hand %d, empty %d", name, ours, byHand, empty)
		if float64(ours-empty) > 1.5*float64(byHand-empty) {
			t.Errorf("%s: %d instructions above empty, by hand %d", name, ours-empty, byHand-empty)
		}
	}
}
