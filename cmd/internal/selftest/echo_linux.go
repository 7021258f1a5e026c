package selftest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// ingress tests the echo replies of the peer, the frames of another host, or neither.
func (r *run) ingress(ctx context.Context) error {
	if !r.Peer.IsValid() && !r.Receive {
		r.rep.add(notTested("ingress", "--peer ADDR names a neighbor that replies to echo requests; or --receive here, and on the other host selftest --send"))
		return nil
	}
	var errs []error
	if r.Peer.IsValid() {
		errs = append(errs, r.echo(ctx))
	}
	if r.Receive {
		errs = append(errs, r.receive(ctx))
	}
	return errors.Join(errs...)
}

// Types of ICMP messages.
const (
	echoRequest4, echoReply4 = 8, 0
	echoRequest6, echoReply6 = 128, 129
)

// echo sends echo requests and compares the replies with a flow.
func (r *run) echo(ctx context.Context) error {
	p := Part{Name: "ingress echo", Received: new(uint64), untagged: true}
	e := r.echoOfPeer()

	// Open the socket before adding the flow, so that it receives every reply that the flow counts.
	c, err := r.socket(ctx, e.network)
	if err != nil {
		return err
	}
	defer c.Close()
	f := flow.Flow{Name: "echo", Match: e.match}
	if err := r.add(ctx, &p, f); err != nil {
		r.rep.add(notAdded(p.Name, err))
		return nil
	}
	if err := r.ping(ctx, c, &p, e); err != nil {
		return err
	}
	if err := r.count(ctx, &p, f.Name); err != nil {
		return err
	}

	p.judge()
	if p.Counted == 0 && *p.Received == 0 {
		p.Reason = fmt.Sprintf("no reply came: is %s a neighbor on the link of %s that replies to echo requests?", r.Peer, r.Interface)
	}
	r.rep.add(p)
	return nil
}

// echoKind has what differs between the echo of IPv4 and that of IPv6.
type echoKind struct {
	network string     // of net.ListenPacket
	request byte       // ICMP type
	reply   byte       // ICMP type
	head    int        // bytes of a reply before its ICMP message
	any     bool       // match any type: a device does not tell all types apart
	match   flow.Match // of the replies
}

// echoOfPeer returns the kind of echo for the peer's address.
func (r *run) echoOfPeer() echoKind {
	e := echoKind{network: "ip4:icmp", request: echoRequest4, reply: echoReply4, head: ethernetHead + 20}
	if r.Peer.Is4() {
		e.match.IPv4 = &flow.IPv4{Src: flow.Addr4{Addr: r.Peer.As4(), Mask: [4]byte{255, 255, 255, 255}}}
	} else {
		e = echoKind{network: "ip6:ipv6-icmp", request: echoRequest6, reply: echoReply6, head: ethernetHead + 40}
		whole := [16]byte(bytes.Repeat([]byte{255}, 16))
		e.match.IPv6 = &flow.IPv6{Src: flow.Addr6{Addr: r.Peer.As16(), Mask: whole}}
	}
	if e.any = r.Switchdev != ""; e.any {
		e.match.ICMP = &flow.ICMP{}
	} else {
		e.match.ICMP = &flow.ICMP{Type: flow.Masked[uint8]{Value: e.reply, Mask: 0xff}}
	}

	if len(r.ifi.HardwareAddr) != 6 { // its frames have no Ethernet header
		e.head -= ethernetHead
	}
	return e
}

// socket opens a raw ICMP socket on the interface.
func (r *run) socket(ctx context.Context, network string) (net.PacketConn, error) {
	listen := net.ListenConfig{}
	address := "0.0.0.0"
	if r.Peer.Is6() {
		address = "::"
	}
	c, err := listen.ListenPacket(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("opening a socket for echo requests: %w", err)
	}
	raw, err := c.(*net.IPConn).SyscallConn()
	if err == nil {
		var bindErr error
		err = raw.Control(func(fd uintptr) {
			bindErr = unix.BindToDevice(int(fd), r.Interface)
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20)
		})
		err = errors.Join(err, bindErr)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("binding a socket to %s: %w", r.Interface, err)
	}
	return c, nil
}

// patience is how long to wait for more replies after the last request.
const patience = 3 * time.Second

// window is the most requests under way at a time, so that no buffer on the way overflows.
const window = 8

// ping sends the requests, a window at a time, and counts the replies. Another program may be pinging the peer, too. The
// flow counts these replies as well, and with echoKind.any all messages, so ping adds them to those sent.
func (r *run) ping(ctx context.Context, c net.PacketConn, p *Part, e echoKind) error {
	id := uint16(rand.Uint32())
	to := &net.IPAddr{IP: r.Peer.AsSlice(), Zone: r.zone()}
	size := func(n int) int { return 64 + n%8*96 }
	b := make([]byte, 4096)

	own := uint64(0) // replies to this test
	for n := 0; ; {
		for ; n < r.Count && p.Sent-own < window; n++ {
			if _, err := c.WriteTo(echoMessage(e.request, id, uint16(n), size(n)), to); err != nil {
				return fmt.Errorf("sending an echo request to %s: %w", r.Peer, err)
			}
			p.Sent++
			p.SentBytes += uint64(e.head + 8 + size(n))
		}
		if n == r.Count && own >= uint64(n) {
			return nil
		}

		wait := 200 * time.Millisecond // do not let a lost reply stop the window for long
		if n == r.Count {
			wait = patience
		}
		got, err := r.reply(ctx, c, b, id, e, wait)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && n == r.Count:
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			own = p.Sent // give up this window; late replies still count as received
			continue
		case err != nil:
			return err
		}

		*p.Received++
		if got.own {
			own = min(own+1, p.Sent)
			continue
		}
		p.Sent++
		own++
		p.SentBytes += uint64(e.head + got.length)
	}
}

// gotReply is an echo reply from the peer, or with echoKind.any another message.
type gotReply struct {
	own    bool // to a request of this test
	length int  // of the ICMP message
}

// reply waits for an echo reply from the peer.
func (r *run) reply(ctx context.Context, c net.PacketConn, b []byte, id uint16, e echoKind, wait time.Duration) (gotReply, error) {
	until := time.Now().Add(wait)
	for {
		if err := ctx.Err(); err != nil {
			return gotReply{}, err
		}
		_ = c.SetReadDeadline(until)
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return gotReply{}, err
		}
		ip, ok := from.(*net.IPAddr)
		if !ok || !ip.IP.Equal(r.Peer.AsSlice()) || n < 8 || b[0] != e.reply && !e.any {
			continue
		}
		return gotReply{own: b[0] == e.reply && binary.BigEndian.Uint16(b[4:]) == id, length: n}, nil
	}
}

// echoMessage builds an echo request. For ICMPv6 the kernel overwrites the checksum.
func echoMessage(typ byte, id, seq uint16, payload int) []byte {
	b := make([]byte, 8+payload)
	b[0] = typ
	binary.BigEndian.PutUint16(b[4:], id)
	binary.BigEndian.PutUint16(b[6:], seq)
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(b[2:], ^uint16(sum))
	return b
}
