package engine

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	kernel "github.com/flowtally/flowtally/xdp"
)

// tagSent adds VLAN tag 100 to the packets that an end sends, beside the frame as a VLAN device does.
func tagSent(t *testing.T, e *lab.End) {
	t.Helper()
	const ethP8021Q = 0x0081 // in network order
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R2, ethP8021Q), asm.Mov.Imm(asm.R3, 100), asm.FnSkbVlanPush.Call(), asm.Mov.Imm(asm.R0, -1), asm.Return(),
	}})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer p.Close()
	err = e.NS.Do(func() error {
		l, err := link.AttachTCX(link.TCXOptions{Program: p, Interface: e.Index, Attach: ebpf.AttachTCXEgress})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A device that takes VLAN tags out of received frames hides them from flows that match vlan. The condition
// vlan-offload reports this. The commands in its fix keep the tags in the frames and end the condition.
func TestTagsThatTheDeviceTakesAreAConditionUntilItsFix(t *testing.T) {
	t.Parallel()
	need.TCX(t)
	for _, mode := range []string{"native", "generic"} {
		t.Run(mode, func(t *testing.T) {
			b := newBench(t, mode, flow.Flow{Name: "untagged", Match: match(t, "udp dport 1001"), Priority: 9})
			tagSent(t, b.wire.Far)
			e := b.start(t)
			x := e.backends[0].(*xdp.Backend)
			has := func() bool {
				x.CheckAll()
				for _, c := range x.Conditions() {
					if c.Code == "vlan-offload" {
						return true
					}
				}
				return false
			}
			if has() {
				t.Error("a condition without a flow that matches vlan")
			}
			if _, err := e.AddFlows(t.Context(), flow.Flow{Name: "tagged", Match: match(t, "vlan id 100 udp dport 1001")}); err != nil {
				t.Fatal(err)
			}
			c := awaitCondition(t, e, "vlan-offload", b.wire.Near.Name, true)
			frame := udpTo(1001, 60)
			send := func() backend.Pair {
				s, err := b.wire.Far.NewSender([]lab.Stream{{Frames: [][]byte{frame}}}, lab.SenderOptions{Stack: true})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				if err := s.Run(context.Background(), 100); err != nil {
					t.Fatal(err)
				}
				if err := s.Settle(t.Context()); err != nil {
					t.Fatal(err)
				}
				return backend.Pair(s.Sent()[0])
			}
			short := send() // as the condition says: the tag is not seen, the packet 4 bytes short
			r := reader(t, b.cfg)
			await(t, r, "untagged", short)
			await(t, r, "tagged", backend.Pair{})
			b.wire.Far.Do(t, lab.Step(t, c.Fix, "ethtool -K PEER tx-vlan-offload off", "PEER", b.wire.Far.Name))
			b.wire.Near.Do(t, lab.Step(t, c.Fix, "ethtool -K "+b.wire.Near.Name+" rx-vlan-offload off"))
			awaitCondition(t, e, "vlan-offload", b.wire.Near.Name, false)
			whole := send()
			whole.Bytes += 4 * whole.Packets
			await(t, r, "tagged", whole)
			await(t, r, "untagged", short)
			t.Logf("%s: vlan id 100 counted 0 of %d, then %d of %d", mode, short.Packets, whole.Packets, whole.Packets)
			if err := e.RemoveFlows(t.Context(), "tagged"); err != nil {
				t.Fatal(err)
			}
			if err := b.wire.Near.SetOffload(true, lab.RxVLAN); err != nil {
				t.Fatal(err)
			}
			if has() {
				t.Error("a condition after the last flow that matches vlan")
			}
		})
	}
}

// A tap whose user may send buffers of many segments is a condition, also in native mode; opened
// without a virtio header it is not.
func TestMergedSegmentsOfATapAreACondition(t *testing.T) {
	need.BPF(t)
	need.Netns(t)
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		need.Missing(t, "tun", err.Error())
	}
	b := newBench(t, "native", flow.Flow{Name: "a", Match: match(t, "any")})
	name := lab.Unique("tap")
	b.cfg.Interfaces = []dataplane.Interface{{Name: name, Mode: "native"}}
	open := func(virtio bool) *lab.Tun {
		tap, err := lab.NewTun(b.wire.Near.NS, name, lab.TunOptions{Ethernet: true, Virtio: virtio})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { tap.Close() })
		return tap
	}
	const segments, mss = 20, 1400
	header := append([]byte{0, 1, 54, 0, mss & 0xff, mss >> 8, 34, 0, 16, 0}, tcpFrame(segments*mss)...) // GSO of TCP over IPv4
	tap := open(true)
	e := b.start(t)
	lab.Step(t, awaitCondition(t, e, "xdp-merged", name, true).Fix, "open the device without IFF_VNET_HDR")
	if _, err := tap.File().Write(header); err != nil {
		t.Fatal(err)
	}
	r := reader(t, b.cfg)
	await(t, r, "a", backend.Pair{Packets: 1, Bytes: 54 + segments*mss}) // as the condition says
	if err := tap.Close(); err != nil {
		t.Fatal(err)
	}
	tap = open(false)
	x := e.backends[0].(*xdp.Backend)
	for end := time.Now().Add(20 * time.Second); !slices.ContainsFunc(x.Inspect().Rules.Attachments(), func(a kernel.Attachment) bool { return a.Index == tap.Index }); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the new device is not counted on")
		}
	}
	awaitCondition(t, e, "xdp-merged", name, false)
	for range segments {
		if _, err := tap.File().Write(tcpFrame(mss)); err != nil {
			t.Fatal(err)
		}
	}
	await(t, r, "a", backend.Pair{Packets: 1 + segments, Bytes: 54 + segments*mss + segments*(54+mss)})
}

// tcpFrame is a TCP segment over IPv4 with so much payload.
func tcpFrame(payload int) []byte {
	b := make([]byte, 54+payload)
	copy(b, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45})
	total := 40 + payload
	b[16], b[17], b[22], b[23] = byte(total>>8), byte(total), 64, 6
	copy(b[26:], []byte{192, 0, 2, 1, 192, 0, 2, 2, 0, 80, 0, 80})
	b[46], b[47] = 5<<4, 0x10
	return b
}
