package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Observer counts the TCP segments to one port that cross one end of a pair,
// by an AF_PACKET socket: the way to know which segments a stream of the kernel's
// own TCP put on the wire. It counts wire segments also where the kernel hands over
// many in one buffer (GSO): as many packets as the buffer will be cut into,
// and the bytes of the headers that each will carry.
type Observer struct {
	end     *End
	fd      int
	stop    chan struct{}
	done    sync.WaitGroup
	packets atomic.Uint64
	bytes   atomic.Uint64
	merged  atomic.Uint64 // buffers that held more than one segment
	last    atomic.Int64  // when a buffer was last seen, Unix ns
	err     error         // of the reader; read after done
}

// Observe starts to count segments over IPv4 and IPv6, without options or
// extension headers, to TCP port: those that leave the end, or those that arrive at it.
func (e *End) Observe(port uint16, leaving bool) (*Observer, error) {
	o := &Observer{end: e, fd: -1, stop: make(chan struct{})}
	err := e.NS.Do(func() error {
		var err error
		// Without a protocol nothing is received: the filter is in place
		// before the first frame is.
		if o.fd, err = packetSocket(e.Index, 0); err != nil {
			return err
		}
		for _, opt := range []struct {
			label              string
			level, name, value int
		}{
			{"PACKET_VNET_HDR", unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1}, // tells GSO buffers apart
			{"SO_RCVBUFFORCE", unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64 << 20},
		} {
			if err := unix.SetsockoptInt(o.fd, opt.level, opt.name, opt.value); err != nil {
				return fmt.Errorf("setting %s: %w", opt.label, err)
			}
		}
		if err := attachFilter(o.fd, tcpTo(port, leaving)); err != nil {
			return fmt.Errorf("attaching the filter: %w", err)
		}
		tick := unix.NsecToTimeval((10 * time.Millisecond).Nanoseconds())
		if err := unix.SetsockoptTimeval(o.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tick); err != nil {
			return err
		}
		return unix.Bind(o.fd, &unix.SockaddrLinklayer{Ifindex: e.Index, Protocol: bigEndian(unix.ETH_P_ALL)})
	})
	if err != nil {
		if o.fd >= 0 {
			unix.Close(o.fd)
		}
		return nil, fmt.Errorf("observing %s: %w", e.Name, err)
	}
	o.done.Go(o.read)
	return o, nil
}

func bigEndian(v uint16) uint16 { return v<<8 | v>>8 }

// read counts until the observer is stopped.
func (o *Observer) read() {
	var buf [256]byte // the headers; MSG_TRUNC says how long the rest is
	for {
		n, _, err := unix.Recvfrom(o.fd, buf[:], unix.MSG_TRUNC)
		switch {
		case err == nil:
			o.count(buf[:min(n, len(buf))], n)
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			select {
			case <-o.stop: // the queue is empty: nothing is left behind
				return
			default:
			}
		default:
			o.err = fmt.Errorf("reading from %s: %w", o.end.Name, err)
			return
		}
	}
}

// virtioHeader is the length of struct virtio_net_hdr, which precedes each
// frame: flags, gso_type, hdr_len u16, gso_size u16, … in the host's order.
const virtioHeader = 10

// count accounts one buffer of length n, of which b is the beginning. The
// filter let it through: it is TCP, over IPv4 without options or over IPv6.
func (o *Observer) count(b []byte, n int) {
	gsoType, gsoSize := b[1], int(binary.NativeEndian.Uint16(b[4:]))
	f, size := b[virtioHeader:], n-virtioHeader
	tcp := 14 + 20
	if f[14]>>4 == 6 {
		tcp = 14 + 40
	}
	headers := tcp + int(f[tcp+12]>>4)*4
	segments := 1
	if gsoType != 0 && gsoSize != 0 {
		segments = max(1, (size-headers+gsoSize-1)/gsoSize)
	}
	if segments > 1 {
		o.merged.Add(1)
	}
	o.packets.Add(uint64(segments))
	o.bytes.Add(uint64(size + (segments-1)*headers))
	o.last.Store(time.Now().UnixNano())
}

// seen returns the counts so far. It may be called from any goroutine.
func (o *Observer) seen() Tally { return Tally{o.packets.Load(), o.bytes.Load()} }

// Merged is how many buffers held more than one segment.
func (o *Observer) Merged() uint64 { return o.merged.Load() }

// Stop waits until no segment arrives for a moment, ends the observer and
// returns its counts. It is an error when the kernel dropped segments on the way
// to the observer: the count would not be exact.
func (o *Observer) Stop() (Tally, error) {
	if o.fd < 0 {
		return o.seen(), nil
	}
	for time.Since(time.Unix(0, o.last.Load())) < 50*time.Millisecond {
		time.Sleep(10 * time.Millisecond)
	}
	close(o.stop)
	o.done.Wait()
	defer func() {
		unix.Close(o.fd)
		o.fd = -1
	}()
	if o.err != nil {
		return o.seen(), o.err
	}
	stats, err := unix.GetsockoptTpacketStats(o.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return o.seen(), fmt.Errorf("reading the observer's drops: %w", err)
	}
	if stats.Drops != 0 {
		return o.seen(), fmt.Errorf("observing %s: the kernel dropped %d buffers on the way to the observer", o.end.Name, stats.Drops)
	}
	return o.seen(), nil
}
