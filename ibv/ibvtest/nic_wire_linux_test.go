package ibvtest_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/frame"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/seed"
)

// nicWire is a wire and the engine on its near end.
func nicWire(t *testing.T) (*lab.Wire, *nicDriver) {
	t.Helper()
	need.Cap(t, "net_admin", "net_raw")
	need.Netns(t)
	w, err := lab.NewWire(lab.WireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	d := startNIC(t, nicProgram(t), w.Near.NS)
	d.must("open %s", w.Near.Name)
	return w, d
}

// stream is a stream of UDP frames to a port, of one size, behind the given layers.
func stream(name string, port uint16, size int, link ...frame.Layer) lab.Stream {
	layers := append(link, frame.IPv4{Src: frame.Addr("192.0.2.2"), Dst: frame.Addr("192.0.2.1")}, frame.UDP{Src: 9, Dst: port})
	return lab.Stream{Name: name, Frames: [][]byte{frame.Sized(size, layers...)}}
}

// traffic is kinds of packets, each with the match that takes it and no other.
func traffic() ([]lab.Stream, []nicMatch) {
	eth := frame.Eth{Dst: [6]byte{2, 0, 0, 0, 0, 1}, Src: [6]byte{2, 0, 0, 0, 0, 2}}
	tagged := udp(1003, 0xffff)
	tagged.Value.Outer.Present |= nicCVLAN
	tagged.Mask.Outer.Present |= nicCVLAN
	tagged.Value.Outer.TCI[0], tagged.Mask.Outer.TCI[0] = 100, 0xfff
	both := udp(1004, 0xffff)
	both.Value.Outer.Present |= nicSVLAN | nicCVLAN2
	both.Mask.Outer.Present |= nicSVLAN | nicCVLAN2
	both.Value.Outer.TCI, both.Mask.Outer.TCI = [2]uint16{5<<13 | 200, 7}, [2]uint16{0xffff, 0xffff}
	var inside nicMatch
	inside.Value.VNI, inside.Mask.VNI = 77, 0xffffff
	inside.Value.Inner, inside.Mask.Inner = udp(1005, 0xffff).Value.Outer, udp(1005, 0xffff).Mask.Outer
	outer := []frame.Layer{eth, frame.IPv4{Src: frame.Addr("192.0.2.2"), Dst: frame.Addr("192.0.2.1")}, frame.UDP{Src: 9, Dst: 4789}, frame.VXLAN{VNI: 77}, eth}
	return []lab.Stream{
			stream("short", 1001, 60, eth), stream("long", 1002, 1514, eth),
			stream("tagged", 1003, 100, eth, frame.VLAN{ID: 100}),
			stream("two tags", 1004, 200, eth, frame.VLAN{ID: 200, PCP: 5, TPID: frame.TypeQinQ}, frame.VLAN{ID: 7}),
			stream("vxlan", 1005, 300, outer...),
		},
		[]nicMatch{udp(1001, 0xffff), udp(1002, 0xffff), tagged, both, inside}
}

// sendAll is send for more packets than the ring has room for. It goes on when the engine has read
// the packets sent so far: no packet is dropped, however busy the engine's CPU is.
func sendAll(t *testing.T, e *lab.End, d *nicDriver, streams []lab.Stream, packets uint64, o lab.SenderOptions) *lab.Sender {
	t.Helper()
	const room = 20_000 // of 32,768
	s := send(t, e, streams, min(packets, room), o)
	for left := packets - min(packets, room); left > 0; left -= min(left, room) {
		d.stats()
		if err := s.Run(t.Context(), min(left, room)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func send(t *testing.T, e *lab.End, streams []lab.Stream, packets uint64, o lab.SenderOptions) *lab.Sender {
	t.Helper()
	s, err := e.NewSender(streams, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Run(ctx, packets); err != nil {
		t.Fatal(err)
	}
	if err := s.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	return s
}

// Every packet counts once, under its kind, at 200,000 packets a second and more, also behind
// thousands of rules without a match.
func TestNICCountsWhatArrives(t *testing.T) {
	w, d := nicWire(t)
	streams, matches := traffic()
	const others = 2000
	for i := range others {
		if errno := d.rule(nicRule{counter: 100, match: udp(uint16(20_000+i), 0xffff)}); errno != 0 {
			t.Fatal(errno)
		}
	}
	for i, m := range matches {
		if errno := d.rule(nicRule{counter: i, priority: 1, match: m}); errno != 0 {
			t.Fatal(errno)
		}
	}
	const packets = 1_000_000
	start := time.Now()
	s := sendAll(t, w.Far, d, streams, packets, lab.SenderOptions{Seed: seed.Uint64(t)})
	took := time.Since(start)
	var all uint64
	for i, want := range s.Sent() {
		if got := d.read(i); got != want {
			t.Errorf("%s: counted %+v, sent %+v", streams[i].Name, got, want)
		}
		all += want.Packets
	}
	if all != packets {
		t.Errorf("sent %d, want %d", all, packets)
	}
	if got := d.read(100); got != (lab.Tally{}) {
		t.Errorf("counted %+v of what was not sent", got)
	}
	st := d.stats()
	if st.drops != 0 || st.truncated != 0 || st.frames < packets || st.rules != others+uint64(len(matches)) {
		t.Errorf("%+v", st)
	}
	t.Logf("%d packets in %v: %.0f a second; %+v", packets, took, packets/took.Seconds(), st)
}

// Egress must count only packets that leave by the netdev.
func TestNICCountsWhatLeaves(t *testing.T) {
	w, d := nicWire(t)
	streams, matches := traffic()
	for i, m := range matches {
		for flags, counter := range map[uint32]int{nicEgress: i, 0: 100 + i} {
			if errno := d.rule(nicRule{flags: flags, counter: counter, match: m}); errno != 0 {
				t.Fatal(errno)
			}
		}
	}
	// Through the stack: packets that bypass it pass no tap.
	out := sendAll(t, w.Near, d, streams, 100_000, lab.SenderOptions{Seed: seed.Uint64(t), Stack: true})
	if out.Refused() != 0 {
		t.Fatalf("%d frames were refused behind the tap", out.Refused())
	}
	in := send(t, w.Far, streams[:1], 1000, lab.SenderOptions{})
	for i, want := range out.Sent() {
		if got := d.read(i); got != want {
			t.Errorf("%s: counted %+v, sent %+v", streams[i].Name, got, want)
		}
	}
	if got, want := d.read(100), in.Sent()[0]; got != want {
		t.Errorf("arrived %+v, want %+v", got, want)
	}
}

// A read includes every packet sent before it.
func TestNICReadsDoNotLag(t *testing.T) {
	w, d := nicWire(t)
	if errno := d.rule(nicRule{match: udp(1001, 0xffff)}); errno != 0 {
		t.Fatal(errno)
	}
	s, err := w.Far.NewSender([]lab.Stream{stream("short", 1001, 60, frame.Eth{})}, lab.SenderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range 300 {
		if err := s.Run(t.Context(), uint64(1+i)); err != nil {
			t.Fatal(err)
		}
		if err := s.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := d.read(0), s.Sent()[0]; got != want {
			t.Fatalf("read %d: %+v, want %+v", i, got, want)
		}
	}
}

func TestNICRuleCountsFromAddingToRemoval(t *testing.T) {
	w, d := nicWire(t)
	streams := []lab.Stream{stream("short", 1001, 60, frame.Eth{})}
	send(t, w.Far, streams, 1000, lab.SenderOptions{})
	if errno := d.rule(nicRule{match: udp(1001, 0xffff)}); errno != 0 {
		t.Fatal(errno)
	}
	send(t, w.Far, streams, 500, lab.SenderOptions{})
	d.must("del 0")
	send(t, w.Far, streams, 250, lab.SenderOptions{})
	if got, want := d.read(0), (lab.Tally{Packets: 500, Bytes: 500 * 60}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if st := d.stats(); st.rules != 0 || st.ingress < 1750 {
		t.Errorf("%+v", st)
	}
	if d.must("clear 0"); d.read(0) != (lab.Tally{}) {
		t.Error("a cleared counter is not 0")
	}
}

// While the engine does not run, the ring fills up. Packets that find no room must count as
// dropped.
func TestNICCountsDropsExactly(t *testing.T) {
	w, d := nicWire(t)
	if errno := d.rule(nicRule{match: udp(1001, 0xffff)}); errno != 0 {
		t.Fatal(errno)
	}
	before := d.stats()
	if err := d.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	const packets = 80_000 // the ring has 32,768 slots
	s := send(t, w.Far, []lab.Stream{stream("short", 1001, 60, frame.Eth{})}, packets, lab.SenderOptions{})
	if err := d.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	got, st := d.read(0), d.stats()
	lost := s.Sent()[0].Packets - got.Packets
	// Other packets of the kernel on the wire may have been dropped, too.
	if others := st.frames - before.frames - got.Packets + 50; lost == 0 || st.drops < lost || st.drops > lost+others {
		t.Errorf("counted %+v of %d sent, %+v", got, packets, st)
	}
}

// Earlier counts must stay.
func TestNICReportsARemovedNetdev(t *testing.T) {
	w, d := nicWire(t)
	if errno := d.rule(nicRule{match: udp(1001, 0xffff)}); errno != 0 {
		t.Fatal(errno)
	}
	send(t, w.Far, []lab.Stream{stream("short", 1001, 60, frame.Eth{})}, 1000, lab.SenderOptions{})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	st := d.stats()
	if st.errno != syscall.ENODEV || st.ingress < 1000 {
		t.Errorf("%+v, want %v and 1000 packets", st, syscall.ENODEV)
	}
	if errno := d.rule(nicRule{match: udp(1002, 0xffff)}); errno != syscall.ENODEV {
		t.Errorf("adding a rule: %v, want %v", errno, syscall.ENODEV)
	}
	d.must("del 0")
}

func TestNICOpenOfAMissingNetdevIsENODEV(t *testing.T) {
	need.Cap(t, "net_raw")
	d := startNIC(t, nicProgram(t), nil)
	if _, errno := d.ask("open %s", lab.Unique("no")); errno != syscall.ENODEV {
		t.Errorf("a netdev that is not there: %v, want %v", errno, syscall.ENODEV)
	}
}
