//go:build vm

package guest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/xdp"
)

// A tap reads the buffers of IPv4, and of TCP over IPv6, that one end of a wire sends or receives, by an AF_PACKET
// socket. It looks at hosts beside the router alone, because its copies would change how the router treats a buffer.
type tap struct {
	fd      int
	leaving bool

	buffers xdp.Pair // as they are
	wire    xdp.Pair // their frames on the wire; buffers of TCP and SCTP alone are taken apart
	esp     xdp.Pair // those of buffers that are ESP
	longest int
}

func newTap(e *lab.End, leaving bool) (*tap, error) {
	p := &tap{fd: -1, leaving: leaving}
	err := e.NS.Do(func() (err error) {
		// Without a protocol nothing is received before the options are set.
		if p.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
			return err
		}
		return errors.Join(
			unix.SetsockoptInt(p.fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
			unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20),
			unix.Bind(p.fd, &unix.SockaddrLinklayer{Ifindex: e.Index, Protocol: 0x0300}), // ETH_P_ALL in wire order
		)
	})
	if err != nil {
		return nil, fmt.Errorf("tapping %s: %w", e.Name, err)
	}
	return p, nil
}

func (p *tap) Close() error { return unix.Close(p.fd) }

// read adds what has passed since the last call.
func (p *tap) read() error {
	buf, control := make([]byte, 256<<10), make([]byte, 256)
	for {
		n, c, _, from, err := unix.Recvmsg(p.fd, buf, control, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			stats, err := unix.GetsockoptTpacketStats(p.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
			if err == nil && stats.Drops > 0 {
				err = fmt.Errorf("%d buffers did not fit", stats.Drops)
			}
			return err
		case err != nil:
			return os.NewSyscallError("recvmsg", err)
		}
		if leaves := from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING; leaves != p.leaving {
			continue
		}
		tag, err := tagLen(control[:c])
		if err != nil {
			return err
		}
		p.count(buf[:n], tag)
	}
}

// tagLen is 4 for a buffer whose VLAN tag is beside it.
func tagLen(control []byte) (int, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0, err
	}
	for _, m := range messages {
		if m.Header.Type == unix.PACKET_AUXDATA && binary.NativeEndian.Uint32(m.Data)&unix.TP_STATUS_VLAN_VALID != 0 {
			return 4, nil
		}
	}
	return 0, nil
}

// count adds a buffer, and the frames that it is on the wire: the kernel fills each one, but the last.
func (p *tap) count(f []byte, tag int) {
	at := 14
	if binary.BigEndian.Uint16(f[12:]) == unix.ETH_P_8021Q {
		at += 4
	}
	ip, proto, header, jumbo := f[at:], 0, 0, 0
	switch binary.BigEndian.Uint16(f[at-2:]) {
	case unix.ETH_P_IP:
		proto, header = int(ip[9]), int(ip[0]&0xf)*4
	case unix.ETH_P_IPV6:
		proto, header = int(ip[6]), 40
		if proto == 0 { // the header of BIG TCP, which the kernel takes out again
			proto, jumbo = int(ip[40]), 8
		}
		if proto != unix.IPPROTO_TCP {
			return
		}
	default:
		return
	}
	p.longest = max(p.longest, len(f))
	add(&p.buffers, 1, len(f)+tag)

	frames, length := 1, len(f)+tag
	if length > at+tag+mtu {
		upper := f[at+header+jumbo:]
		switch proto {
		case unix.IPPROTO_TCP:
			header += int(upper[12]>>4) * 4
			frames = (len(f) - at - header - jumbo + mtu - header - 1) / (mtu - header)
		case unix.IPPROTO_SCTP:
			header += sctpHeader
			frames = sctpFrames(upper[sctpHeader:], mtu-header)
		}
		length += (frames-1)*(at+tag+header) - jumbo
	}
	add(&p.wire, frames, length)
	if proto == unix.IPPROTO_ESP {
		add(&p.esp, frames, length)
	}
}

const (
	mtu        = 1500
	sctpHeader = 12
)

// sctpFrames is the number of packets that chunks fill, each with up to room bytes of them.
func sctpFrames(chunks []byte, room int) int {
	frames, filled := 1, 0
	for len(chunks) >= 4 {
		n := min((int(binary.BigEndian.Uint16(chunks[2:]))+3)&^3, len(chunks))
		if filled+n > room {
			frames, filled = frames+1, 0
		}
		filled += n
		chunks = chunks[max(n, 4):]
	}
	return frames
}

func add(p *xdp.Pair, packets, bytes int) {
	p.Packets += uint64(packets)
	p.Bytes += uint64(bytes)
}

// minus is the difference of two counts.
func minus(a, b xdp.Pair) xdp.Pair {
	return xdp.Pair{Packets: a.Packets - b.Packets, Bytes: a.Bytes - b.Bytes}
}

// plus is their sum.
func plus(a, b xdp.Pair) xdp.Pair {
	return xdp.Pair{Packets: a.Packets + b.Packets, Bytes: a.Bytes + b.Bytes}
}

// shorter is a count whose packets each lack n bytes.
func shorter(p xdp.Pair, n int) xdp.Pair {
	return xdp.Pair{Packets: p.Packets, Bytes: p.Bytes - p.Packets*uint64(n)}
}
