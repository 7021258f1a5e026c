//go:build vm

package guest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab"
)

// A transport carries a payload from one host to another.
type transport struct {
	kind, protocol int // of the socket
	write          int // bytes of one write
	window         int // bytes that may be under way
	datagram       int // of UDP, in a write of several that the kernel takes apart; 0: one
}

var (
	tcp       = transport{unix.SOCK_STREAM, unix.IPPROTO_TCP, 256 << 10, 256 << 10, 0} // fewer segments than the ring of a veth holds, and more than one buffer of BIG TCP
	sctp      = transport{unix.SOCK_STREAM, unix.IPPROTO_SCTP, 60_000, 1 << 20, 0}
	udp       = transport{unix.SOCK_DGRAM, unix.IPPROTO_UDP, 20_000, 16 << 20, 1000}
	datagrams = transport{unix.SOCK_DGRAM, unix.IPPROTO_UDP, 8000, 16 << 20, 0} // fragmented by IP
)

// payload is what every stream carries, the beginning of it.
var payload = func() []byte {
	b := make([]byte, 4<<20)
	for i := range b {
		b[i] = byte(i*7 + i/251)
	}
	return b
}()

// send carries that many bytes of the payload, and returns when the receiver has all of them and the connection
// is closed on both sides. What arrives is compared by its checksum.
func (tp transport) send(from, to *lab.Netns, addr string, port uint16, bytes int) error {
	at := netip.AddrPortFrom(netip.MustParseAddr(addr), port)
	in, err := tp.socket(to, at, unix.Bind)
	if err != nil {
		return err
	}
	defer unix.Close(in)
	if tp.kind == unix.SOCK_STREAM {
		if err := unix.Listen(in, 1); err != nil {
			return os.NewSyscallError("listen", err)
		}
	}
	arrived := make(chan error, 1)
	go func() { arrived <- tp.receive(in, bytes) }()

	out, err := tp.socket(from, at, connect)
	if err != nil {
		return err
	}
	if tp.datagram > 0 {
		err = unix.SetsockoptInt(out, unix.IPPROTO_UDP, unix.UDP_SEGMENT, tp.datagram)
	}
	for sent := 0; sent < bytes && err == nil; {
		var n int
		n, err = unix.Write(out, payload[sent:min(bytes, sent+tp.write)])
		if errors.Is(err, unix.EINTR) {
			n, err = 0, nil
		}
		sent += n
	}
	if err != nil {
		err = os.NewSyscallError("write", err)
	} else if tp.kind == unix.SOCK_STREAM {
		// The read returns when the other side has closed, too. An association of SCTP is gone by then.
		err = os.NewSyscallError("shutdown", unix.Shutdown(out, unix.SHUT_WR))
		_, e := unix.Read(out, make([]byte, 1))
		for errors.Is(e, unix.EINTR) {
			_, e = unix.Read(out, make([]byte, 1))
		}
		if err == nil && e != nil && !errors.Is(e, unix.ENOTCONN) {
			err = os.NewSyscallError("read", e)
		}
	}
	return errors.Join(err, os.NewSyscallError("close", unix.Close(out)), <-arrived)
}

// socket makes one in a namespace, and binds or connects it. It gives up after patience.
func (tp transport) socket(ns *lab.Netns, at netip.AddrPort, use func(int, unix.Sockaddr) error) (int, error) {
	var name unix.Sockaddr = &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	family := unix.AF_INET6
	if at.Addr().Is4() {
		name, family = &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}, unix.AF_INET
	}
	fd := -1
	err := ns.Do(func() (err error) {
		fd, err = unix.Socket(family, tp.kind|unix.SOCK_CLOEXEC, tp.protocol)
		return os.NewSyscallError("socket", err)
	})
	if err != nil {
		return fd, err
	}
	limit := unix.NsecToTimeval(patience.Nanoseconds())
	for _, err := range []error{
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, tp.window),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		use(fd, name),
	} {
		if err != nil {
			unix.Close(fd)
			return -1, fmt.Errorf("using a socket for %s: %w", at, err)
		}
	}
	return fd, nil
}

// connect goes on where a signal has interrupted it.
func connect(fd int, to unix.Sockaddr) error {
	err := unix.Connect(fd, to)
	for errors.Is(err, unix.EINTR) || errors.Is(err, unix.EALREADY) {
		err = unix.Connect(fd, to)
	}
	if errors.Is(err, unix.EISCONN) {
		return nil
	}
	return err
}

// accept does the same.
func accept(fd int) (int, error) {
	conn, _, err := unix.Accept(fd)
	for errors.Is(err, unix.EINTR) {
		conn, _, err = unix.Accept(fd)
	}
	return conn, os.NewSyscallError("accept", err)
}

// receive reads that many bytes, and compares their checksum.
func (tp transport) receive(fd, bytes int) error {
	conn := fd
	if tp.kind == unix.SOCK_STREAM {
		var err error
		if conn, err = accept(fd); err != nil {
			return err
		}
		defer unix.Close(conn)
	}
	sum, got, buf := sha256.New(), 0, make([]byte, 1<<20)
	for got < bytes || tp.kind == unix.SOCK_STREAM {
		n, err := unix.Read(conn, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.ENOTCONN) { // an association of SCTP that was closed on both sides is gone
			break
		}
		if err != nil {
			return fmt.Errorf("receiving after %d of %d bytes: %w", got, bytes, err)
		}
		if n == 0 {
			break
		}
		sum.Write(buf[:n])
		got += n
	}
	if got != bytes || [32]byte(sum.Sum(nil)) != sha256.Sum256(payload[:bytes]) {
		return fmt.Errorf("receiving %d bytes, with another content than the %d that were sent", got, bytes)
	}
	return nil
}
