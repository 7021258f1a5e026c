package selftest

import (
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
	p := Part{Name: "ingress echo", Received: new(uint64)}
	f := flow.Flow{Name: "echo", Match: flow.Match{ICMP: &flow.ICMP{Type: flow.Masked[uint8]{Value: echoReply4, Mask: 0xff}}}}
	network, request, reply, head := "ip4:icmp", byte(echoRequest4), byte(echoReply4), 34
	if r.Peer.Is4() {
		f.Match.IPv4 = &flow.IPv4{Src: flow.Addr4{Addr: r.Peer.As4(), Mask: [4]byte{255, 255, 255, 255}}}
	} else {
		mask := [16]byte{}
		for i := range mask {
			mask[i] = 255
		}
		f.Match.IPv6 = &flow.IPv6{Src: flow.Addr6{Addr: r.Peer.As16(), Mask: mask}}
		network, request, reply, head = "ip6:ipv6-icmp", echoRequest6, echoReply6, 54
		f.Match.ICMP.Type.Value = echoReply6
	}
	if len(r.ifi.HardwareAddr) != 6 {
		head -= 14
	}
	c, err := r.socket(ctx, network)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := r.add(ctx, &p, f); err != nil {
		r.rep.add(notTested(p.Name, err.Error()))
		return nil
	}
	if err := r.ping(ctx, c, &p, request, reply, head); err != nil {
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

// patience is the wait for a reply after the last request.
const patience = 3 * time.Second

// ping sends the requests, a window of them at a time, and counts the replies. Replies to another program by the same
// peer count as sent: the flow counts them too.
func (r *run) ping(ctx context.Context, c net.PacketConn, p *Part, request, reply byte, head int) error {
	id := uint16(rand.Uint32())
	to := &net.IPAddr{IP: r.Peer.AsSlice(), Zone: r.zone()}
	size := func(n int) int { return 64 + n%8*96 }
	b := make([]byte, 4096)
	own := uint64(0) // replies to this test
	for n := 0; ; {
		for ; n < r.Count && p.Sent-own < 8; n++ {
			if _, err := c.WriteTo(echoMessage(request, id, uint16(n), size(n)), to); err != nil {
				return fmt.Errorf("sending an echo request to %s: %w", r.Peer, err)
			}
			p.Sent++
			p.SentBytes += uint64(head + 8 + size(n))
		}
		if n == r.Count && own >= uint64(n) {
			return nil
		}
		wait := 200 * time.Millisecond // a lost reply must not hold up the window for long
		if n == r.Count {
			wait = patience
		}
		got, err := r.reply(ctx, c, b, id, reply, wait)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && n == r.Count:
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			own = p.Sent // the window is given up; later replies are still counted as received
			continue
		case err != nil:
			return err
		}
		*p.Received++
		if got.own {
			own = min(own+1, p.Sent)
		} else {
			p.Sent++
			own++
			p.SentBytes += uint64(head + got.length)
		}
	}
}

type gotReply struct {
	own    bool
	length int // of the ICMP message
}

// reply waits for one echo reply of the peer.
func (r *run) reply(ctx context.Context, c net.PacketConn, b []byte, id uint16, reply byte, wait time.Duration) (gotReply, error) {
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
		if !ok || !ip.IP.Equal(r.Peer.AsSlice()) || n < 8 || b[0] != reply {
			continue
		}
		return gotReply{own: binary.BigEndian.Uint16(b[4:]) == id, length: n}, nil
	}
}

// echoMessage is an echo request; the kernel fills in the checksum of ICMPv6.
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
