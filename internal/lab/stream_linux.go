package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// SegmentsSent holds the figures of the sender's TCP for a finished stream: the
// segments that it sent of any kind (tcpi_segs_out: SYN, data, ACKs, FIN, and the
// retransmitted among them).
type SegmentsSent struct{ Segments, Retransmitted uint32 }

// receiveBuffer bounds the stream's window to fewer segments than veth's ring
// holds (256): a segment that a full ring dropped would have left the sender, and
// been counted there, without reaching a native XDP program.
const receiveBuffer = 64 << 10

// StreamTCP opens a TCP connection of the kernel's own from one end to addr on
// the other, sends that many bytes and closes it in order: when it returns the
// receiver has read everything and both sides have seen the other's FIN. Where ctx
// ends first the stream is broken off, and the error is ctx.Err().
func StreamTCP(ctx context.Context, from, to *End, addr netip.AddrPort, bytes int64) (SegmentsSent, error) {
	sent, err := streamTCP(ctx, from, to, addr, bytes)
	if err != nil {
		return sent, fmt.Errorf("streaming TCP from %s to %s: %w", from.Name, addr, err)
	}
	return sent, nil
}

func streamTCP(ctx context.Context, from, to *End, addr netip.AddrPort, bytes int64) (SegmentsSent, error) {
	var listener net.Listener
	smallWindow := func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer)
		}), err)
	}
	err := to.NS.Do(func() (err error) {
		listener, err = (&net.ListenConfig{Control: smallWindow}).Listen(ctx, "tcp", addr.String())
		return err
	})
	if err != nil {
		return SegmentsSent{}, err
	}
	received := make(chan error, 1)
	go func() { received <- receive(listener, bytes) }()

	var conn *net.TCPConn
	err = from.NS.Do(func() error {
		// One address, one family: the dial happens on this thread.
		c, err := (&net.Dialer{FallbackDelay: -1}).DialContext(ctx, "tcp", addr.String())
		if err == nil {
			conn = c.(*net.TCPConn)
		}
		return err
	})
	if err != nil {
		listener.Close()
		return SegmentsSent{}, errors.Join(err, <-received)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	if err = transmit(conn, bytes); err != nil {
		conn.Close() // else the receiver waits for the rest
		if ctx.Err() != nil {
			err = ctx.Err() // in place of the deadline that stands for it
		}
	}
	listener.Close()
	if err := errors.Join(err, <-received); err != nil {
		return SegmentsSent{}, err
	}
	return segments(conn)
}

// transmit sends, ends its direction and waits for the peer to end the other.
func transmit(conn *net.TCPConn, bytes int64) error {
	if _, err := io.CopyN(conn, zeros{}, bytes); err != nil {
		return err
	}
	if err := conn.CloseWrite(); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, conn)
	return err
}

// receive takes one connection and reads it to its end.
func receive(l net.Listener, want int64) error {
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	n, err := io.Copy(io.Discard, c)
	if err == nil && n != want {
		err = fmt.Errorf("received %d of %d bytes", n, want)
	}
	return err
}

// segments reads the TCP_INFO of a connection that is still open.
func segments(conn *net.TCPConn) (SegmentsSent, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return SegmentsSent{}, err
	}
	var info *unix.TCPInfo
	var infoErr error
	err = raw.Control(func(fd uintptr) {
		info, infoErr = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	if err = errors.Join(err, infoErr); err != nil {
		return SegmentsSent{}, fmt.Errorf("reading TCP_INFO: %w", err)
	}
	return SegmentsSent{Segments: info.Segs_out, Retransmitted: info.Total_retrans}, nil
}

// zeros is an endless source.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
