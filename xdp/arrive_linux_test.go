package xdp

import (
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/frame"
)

// arrive sends packets of a frame and waits until the programs of the other end have run.
func arrive(t *testing.T, from *lab.End, packets uint64, frame []byte) {
	t.Helper()
	s, err := from.NewSender([]lab.Stream{{Frames: [][]byte{frame}}}, lab.SenderOptions{Stack: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Run(t.Context(), packets); err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Frames arrive with VLAN 100 and priority 1. Their tag is in the frame, or beside it, as a NIC delivers it. Both count with the 4
// bytes of the tag. A rule for untagged frames counts neither.
func TestTCXIngressCountsTagsInTheFrameAndBesideIt(t *testing.T) {
	const packets = 100
	tci := [2]byte{0x20, 100}
	for _, inside := range []bool{true, false} {
		t.Run(map[bool]string{true: "in the frame", false: "beside it"}[inside], func(t *testing.T) {
			w := testWire(t)
			dp := openTest(t, Options{MaxRules: 1024})
			var tagged, untagged Rule
			tagged.Counter, untagged.Counter, untagged.Order = mustCounter(t, dp, "tagged"), mustCounter(t, dp, "untagged"), 1
			tagged.Key.Out.Flags, tagged.Mask.Out.Flags = FlagTag1|FlagIPv4, FlagTag1|FlagTag2|FlagIPv4
			tagged.Key.Out.VLAN[0], tagged.Mask.Out.VLAN[0] = tci, [2]byte{255, 255}
			untagged.Key.Out.Flags, untagged.Mask.Out.Flags = FlagIPv4, FlagTag1|FlagIPv4
			mustAdd(t, dp, tagged, untagged)
			attach(t, dp, w.Near, AttachOptions{Mode: ModeTCX, Ingress: true})
			frame := udp4(0x0a000001, 0x0a000002, 1000, 53, 100)
			if inside {
				frame = append(append(frame[:12:12], 0x81, 0, tci[0], tci[1]), frame[12:]...)
			} else {
				pushTag(t, w.Far, 1<<13|100)
			}
			arrive(t, w.Far, packets, frame)
			if got, want := readOne(t, dp, tagged.Counter), (Pair{packets, packets * 104}); got != want {
				t.Errorf("vlan id 100 pcp 1: got %+v, want %+v", got, want)
			}
			if got := readOne(t, dp, untagged.Counter); got != (Pair{}) {
				t.Errorf("untagged: got %+v, want none", got)
			}
		})
	}
}

// A bridge has no native XDP, so ModeAuto uses TCX there. It sees the packets that the bridge delivers to the host, and none that it
// forwards.
func TestBridgeCountsPacketsForTheHost(t *testing.T) {
	w := testWire(t)
	bridge := &lab.End{NS: w.Near.NS, Name: lab.Unique("br")}
	err := bridge.NS.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.HardwareAddr = bridge.Name, net.HardwareAddr{2, 0, 0, 0, 0, 1}
		b := &netlink.Bridge{LinkAttrs: attrs}
		if err := netlink.LinkAdd(b); err != nil {
			return err
		}
		port, err := netlink.LinkByName(w.Near.Name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetMaster(port, b); err != nil {
			return err
		}
		return netlink.LinkSetUp(b)
	})
	if err != nil {
		t.Fatal(err)
	}
	dp := openTest(t, Options{MaxRules: 1024})
	ids := floodRules(t, dp, 2)
	if a := attach(t, dp, bridge, AttachOptions{Ingress: true}); a[0].Mode != modeTCX {
		t.Fatalf("attachment %+v, want mode tcx", a[0])
	}
	packet := func(to byte, port uint16) []byte { // br_netfilter drops headers with a wrong checksum
		return frame.Sized(100, frame.Eth{Dst: [6]byte{2, 0, 0, 0, 0, to}, Src: [6]byte{2, 0, 0, 0, 0, 2}},
			frame.IPv4{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2")}, frame.UDP{Src: port, Dst: 53})
	}
	lab.Eventually(t, "the bridge forwards from its port", func() bool {
		arrive(t, w.Far, 1, packet(1, 1000))
		return readOne(t, dp, ids[0]) != Pair{}
	})
	was := readOne(t, dp, ids[0])
	const packets = 1000
	arrive(t, w.Far, packets, packet(1, 1000))
	arrive(t, w.Far, packets, packet(9, 1001)) // not the bridge's address
	if got, want := readOne(t, dp, ids[0]), (Pair{was.Packets + packets, was.Bytes + 100*packets}); got != want {
		t.Errorf("to the host: got %+v, want %+v", got, want)
	}
	if got := readOne(t, dp, ids[1]); got != (Pair{}) {
		t.Errorf("to another host: got %+v, want none", got)
	}
}
