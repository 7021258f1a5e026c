package selftest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// The payload of a frame begins with magic, the number of the run, the number of the frame, and the total number of
// frames, so that the receiver knows how many were sent.
const magic = "flowtally selftest"

const headLen = len(magic) + 8 + 4 + 4

// sizeOf returns the size of frame n without a tag. The sizes differ, so that a wrong byte basis shows.
func sizeOf(n int) int { return 60 + n%8*136 }

// batch describes the frames that one part sends.
type batch struct {
	from      *net.Interface
	to        net.HardwareAddr
	etherType uint16
	tagged    bool
	number    uint64 // of the run
	total     int
}

// frame returns the frame n of the batch.
func (t *batch) frame(n int) []byte {
	b := append(append([]byte(nil), t.to...), t.from.HardwareAddr...)
	size := sizeOf(n)
	if t.tagged {
		b = append(b, 0x81, 0, 0, 0)
		size += tagLen
	}
	b = binary.BigEndian.AppendUint16(b, t.etherType)
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint64(b, t.number)
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	b = binary.BigEndian.AppendUint32(b, uint32(t.total))
	return append(b, make([]byte, size-len(b))...)
}

// egress sends frames without and with a tag, and compares each kind with a flow of its own.
func (r *run) egress(ctx context.Context) error {
	if len(r.ifi.HardwareAddr) != 6 {
		r.rep.add(notTested("egress", r.Interface+" has no Ethernet header"))
		return nil
	}
	to := r.ifi.HardwareAddr
	if r.Send {
		var err error
		if to, err = r.neighbor(); err != nil {
			return err
		}
	}

	// The flow for untagged frames also matches tagged ones, so it is added last and with a lower priority.
	tagged := flow.Flow{Name: "egress-tagged", Direction: flow.Egress, Match: ethMatch()}
	tagged.Match.VLAN = []flow.VLAN{{}}
	if err := r.egressPart(ctx, tagged, to, true); err != nil {
		return err
	}
	untagged := flow.Flow{Name: "egress", Direction: flow.Egress, Match: ethMatch(), Priority: 1}
	return r.egressPart(ctx, untagged, to, false)
}

// egressPart sends the frames of one flow.
func (r *run) egressPart(ctx context.Context, f flow.Flow, to net.HardwareAddr, tagged bool) error {
	p := Part{Name: f.Name}
	if err := r.add(ctx, &p, f); err != nil {
		r.rep.add(notAdded(f.Name, err))
		return nil
	}
	frames := batch{from: r.ifi, to: to, etherType: EtherType, tagged: tagged, number: rand.Uint64(), total: r.Count}
	if err := p.send(ctx, frames); err != nil {
		return err
	}
	if err := r.count(ctx, &p, f.Name); err != nil {
		return err
	}
	p.judge()
	r.rep.add(p)
	return nil
}

// send sends the frames of a part through the queueing discipline, because TCX does not see a frame that bypasses it.
func (p *Part) send(ctx context.Context, frames batch) error {
	fd, err := packetSocket(frames.from.Index, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)

	for n := range frames.total {
		b := frames.frame(n)
		switch err := send(ctx, fd, b); {
		case errors.Is(err, unix.ENOBUFS): // dropped by a queue or a program after the egress hook
			p.Dropped++
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("sending on %s: %w", frames.from.Name, err)
		}
		p.Sent++
		if frames.tagged {
			p.tagged++
		}
		p.SentBytes += uint64(len(b))
		if n%32 == 31 {
			time.Sleep(time.Millisecond) // limit the rate to about 30,000 frames a second
		}
	}
	return nil
}

func packetSocket(ifindex int, proto uint16) (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("opening a packet socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(proto), Ifindex: ifindex}); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("binding a packet socket: %w", err)
	}
	return fd, nil
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// send sends one frame, and waits while the socket's buffer is full.
func send(ctx context.Context, fd int, frame []byte) error {
	for {
		err := unix.Send(fd, frame, unix.MSG_DONTWAIT)
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		time.Sleep(time.Millisecond)
	}
}

// neighbor returns the hardware address of the peer, from the kernel's neighbor table.
func (r *run) neighbor() (net.HardwareAddr, error) {
	// Send a datagram, which makes the kernel resolve the address.
	if c, err := net.Dial("udp", net.JoinHostPort(r.Peer.WithZone(r.zone()).String(), "9")); err == nil {
		_, _ = c.Write(nil)
		c.Close()
	}

	family := netlink.FAMILY_V4
	if r.Peer.Is6() {
		family = netlink.FAMILY_V6
	}
	for deadline := time.Now().Add(3 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		all, err := netlink.NeighList(r.ifi.Index, family)
		if err != nil {
			return nil, fmt.Errorf("reading the neighbors of %s: %w", r.Interface, err)
		}
		for _, n := range all {
			if n.IP.Equal(r.Peer.AsSlice()) && len(n.HardwareAddr) == 6 {
				return n.HardwareAddr, nil
			}
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%s is no neighbor on %s: it does not reply to the kernel's question for its hardware address", r.Peer, r.Interface)
		}
	}
}

// zone returns the zone of the peer's address. Only link-local addresses have one.
func (r *run) zone() string {
	if r.Peer.Is6() && r.Peer.IsLinkLocalUnicast() {
		return r.Interface
	}
	return ""
}

// receive counts the frames of a selftest with Send, and compares them with the totals in the frames.
func (r *run) receive(ctx context.Context) error {
	p := Part{Name: "ingress frames", Received: new(uint64)}
	f := flow.Flow{Name: "received", Match: ethMatch()}
	f.Match.Eth.Dst.Addr = [6]byte(r.ifi.HardwareAddr)
	f.Match.Eth.Dst.Mask = [6]byte{255, 255, 255, 255, 255, 255}

	// Open the socket before adding the flow, so that it receives every frame that the flow counts.
	fd, err := packetSocket(r.ifi.Index, unix.ETH_P_ALL)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := r.add(ctx, &p, f); err != nil {
		r.rep.add(notAdded(p.Name, err))
		return nil
	}
	if r.Ready != nil {
		r.Ready(r.ifi.HardwareAddr)
	}

	a := arrivals{totalBySeries: map[series]int{}}
	if err := a.read(ctx, fd, r.ifi.HardwareAddr, r.Wait); err != nil {
		return err
	}
	if a.n == 0 {
		r.rep.add(notTested(p.Name, fmt.Sprintf("no frame of a selftest --send has arrived in %s", r.Wait)))
		return nil
	}
	*p.Received = a.n
	p.Sent, p.SentBytes, p.tagged = a.sent()
	if err := r.count(ctx, &p, f.Name); err != nil {
		return err
	}
	p.judge()
	r.rep.add(p)
	return nil
}

// series identifies the frames of one kind in one run of the other host.
type series struct {
	number uint64 // of the run
	tagged bool
}

// arrivals counts the frames of selftests received by a socket.
type arrivals struct {
	n             uint64
	totalBySeries map[series]int // sent frames, according to the frames themselves
}

// silence is how long to wait for another frame before we assume that the other host is done.
const silence = 4 * time.Second

// read counts frames until none arrives any more. It also ends if the first one does not arrive in time.
func (a *arrivals) read(ctx context.Context, fd int, own net.HardwareAddr, wait time.Duration) error {
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000})
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
	_ = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1)

	end := time.Now().Add(wait)
	b := make([]byte, 2048)
	oob := make([]byte, 256)
	for time.Now().Before(end) {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, oobLen, _, from, err := unix.Recvmsg(fd, b, oob, 0)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("receiving frames: %w", err)
		}
		if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		if a.add(b[:n], own, tagTakenOut(oob[:oobLen])) {
			end = time.Now().Add(silence)
		}
	}
	return nil
}

// tagTakenOut reports whether the kernel has moved a VLAN tag out of the frame and into the control message.
func tagTakenOut(oob []byte) bool {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return false
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_PACKET && m.Header.Type == unix.PACKET_AUXDATA && len(m.Data) >= 4 {
			return binary.NativeEndian.Uint32(m.Data)&unix.TP_STATUS_VLAN_VALID != 0
		}
	}
	return false
}

// Limits on what frames may claim. Any host on the link can send such frames.
const (
	mostFrames = 1_000_000 // of a series; --count allows no more
	mostSeries = 16
)

// add counts a frame and returns true, if the frame is of a selftest and for this interface.
func (a *arrivals) add(b []byte, own net.HardwareAddr, tagged bool) bool {
	if len(b) < 18 || !bytes.Equal(b[:6], own) {
		return false
	}
	b = b[12:]
	if binary.BigEndian.Uint16(b) == 0x8100 {
		b = b[tagLen:]
		tagged = true
	}
	if binary.BigEndian.Uint16(b) != EtherType || len(b) < 2+headLen || string(b[2:][:len(magic)]) != magic {
		return false
	}

	b = b[2+len(magic):]
	number := binary.BigEndian.Uint64(b)
	total := binary.BigEndian.Uint32(b[12:])
	if total > mostFrames || len(a.totalBySeries) > mostSeries {
		return false
	}
	a.n++
	a.totalBySeries[series{number, tagged}] = int(total)
	return true
}

// sent returns the number of sent frames, their bytes, and how many of them have a tag.
func (a *arrivals) sent() (packets, bytes, tagged uint64) {
	for s, total := range a.totalBySeries {
		for n := range total {
			packets++
			bytes += uint64(sizeOf(n))
			if s.tagged {
				bytes += tagLen
				tagged++
			}
		}
	}
	return packets, bytes, tagged
}
