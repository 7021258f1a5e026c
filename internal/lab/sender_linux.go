package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// SenderOptions shapes a Sender. The zero value is the fast way: past the
// queueing discipline, and past TCX egress.
type SenderOptions struct {
	// Batch is the number of frames of one sendmmsg; 0 means 64.
	Batch int
	// Stack sends through dev_queue_xmit, where TCX egress programs run, in
	// place of PACKET_QDISC_BYPASS. A frame that such a program counted may
	// be refused behind it: check Refused.
	Stack bool
	// SendBuffer is how much the socket may have in flight, in bytes of kernel
	// memory; 0 leaves the default, which suits a ring of 256.
	SendBuffer int
	// CPU to send from, plus 1; 0 means any.
	CPU int
	// Rate in frames per second; 0 means as fast as it goes.
	Rate int
	// Seed of the order in which streams are mixed.
	Seed uint64
}

// Sender sends the frames of its streams, mixed, through one end of a pair, by
// sendmmsg on an AF_PACKET socket. It counts the sent frames exactly: the kernel's
// own count of accepted frames.
//
// Measured here (Linux 6.18), with programs slow enough to fall behind: frames
// in veth's ring (256, native XDP) and in the backlog of the CPU (1000,
// generic) still count against the socket's send buffer, so that sendmmsg sleeps
// before either overflows. With a larger buffer they do overflow; veth then drops
// the frame and says so: veth_xmit returns NET_XMIT_DROP, sendmmsg stops at
// that frame, or returns ENOBUFS when it is the first. The sender does not count that
// frame, waits and offers it again. In both cases every frame that was taken, and no other,
// reached the program, as long as none is attached or detached meanwhile.
type Sender struct {
	end     *End
	o       SenderOptions
	fd      int
	streams []Stream
	slots   []slot
	msgs    []mmsghdr
	next    int // the slot that is sent next
	tally   []tally
	refused atomic.Uint64
}

// tally is a Tally that one goroutine adds to and others read. It has a cache
// line of its own.
type tally struct {
	packets, bytes atomic.Uint64
	_              [48]byte
}

// NewSender opens the socket on e and lays the streams out. The frames must not
// change while the sender lives.
func (e *End) NewSender(streams []Stream, o SenderOptions) (*Sender, error) {
	if o.Batch == 0 {
		o.Batch = 64
	}
	slots, err := schedule(streams, o.Seed)
	if err != nil {
		return nil, err
	}
	s := &Sender{
		end: e, o: o, fd: -1, streams: streams, slots: slots,
		msgs: messages(slots), tally: make([]tally, len(streams)),
	}
	err = e.NS.Do(func() error {
		s.fd, err = packetSocket(e.Index, 0)
		if err == nil && o.SendBuffer != 0 {
			err = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, o.SendBuffer)
		}
		if err != nil || o.Stack {
			return err
		}
		return unix.SetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1)
	})
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("opening a packet socket on %s: %w", e.Name, err)
	}
	return s, nil
}

// SendOn sends n frames on an interface of the caller's network namespace, like a program of the host.
func SendOn(ifname string, n int, frame []byte) error {
	ifi, err := net.InterfaceByName(ifname)
	if err != nil {
		return err
	}
	fd, err := packetSocket(ifi.Index, 0)
	if err != nil {
		return fmt.Errorf("sending on %s: %w", ifname, err)
	}
	defer unix.Close(fd)

	for range n {
		if _, err := unix.Write(fd, frame); err != nil {
			return fmt.Errorf("sending on %s: %w", ifname, err)
		}
	}
	return nil
}

// packetSocket opens an AF_PACKET socket on the interface: for sending only
// when proto is 0. It belongs to the namespace of the calling thread.
func packetSocket(ifindex int, proto uint16) (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: ifindex, Protocol: bigEndian(proto)}); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Run sends until ctx ends, or until it has sent packets frames when that is
// not 0, on a thread of its own. It returns nil in both cases. A frame that the kernel
// refuses with ENOBUFS or EAGAIN is offered again; any other error ends Run.
// It may run again, and then goes on.
func (s *Sender) Run(ctx context.Context, packets uint64) error {
	done := make(chan error, 1)
	go func() {
		// A thread with an affinity of its own is not given back.
		runtime.LockOSThread()
		if s.o.CPU == 0 {
			defer runtime.UnlockOSThread()
		} else {
			var set unix.CPUSet
			set.Set(s.o.CPU - 1)
			if err := unix.SchedSetaffinity(0, &set); err != nil {
				done <- fmt.Errorf("moving to CPU %d: %w", s.o.CPU-1, err)
				return
			}
		}
		done <- s.run(ctx, packets)
	}()
	return <-done
}

func (s *Sender) run(ctx context.Context, packets uint64) error {
	start := time.Now()
	var sent uint64
	for packets == 0 || sent < packets {
		select {
		case <-ctx.Done():
			return nil
		default:
		}
		n := uint64(s.o.Batch)
		if packets != 0 {
			n = min(n, packets-sent)
		}
		if s.o.Rate != 0 {
			var ok bool
			if n, ok = s.due(ctx, start, sent, n); !ok {
				return nil
			}
		}
		accepted, err := s.send(int(n))
		sent += uint64(accepted)
		switch {
		case err == nil:
		case errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.EAGAIN):
			// The consumer is behind: leave it the CPU.
			s.refused.Add(1)
			time.Sleep(20 * time.Microsecond)
		case errors.Is(err, unix.EINTR):
		default:
			return fmt.Errorf("sending a frame of %q (%d bytes) on %s: %w",
				s.streams[s.slots[s.next].stream].Name, len(s.slots[s.next].frame), s.end.Name, err)
		}
	}
	return nil
}

// due waits until at least one of the next n frames is due at the sender's
// rate, and says how many are. False means that ctx ended.
func (s *Sender) due(ctx context.Context, start time.Time, sent, n uint64) (uint64, bool) {
	for {
		elapsed := time.Since(start)
		allowed := uint64(elapsed.Seconds()*float64(s.o.Rate)) + 1
		if allowed > sent {
			return min(n, allowed-sent), true
		}
		wait := time.Duration(float64(sent+1)/float64(s.o.Rate)*float64(time.Second)) - elapsed
		select {
		case <-ctx.Done():
			return 0, false
		case <-time.After(max(wait, 50*time.Microsecond)):
		}
	}
}

// send offers up to n slots, at most to the end of the schedule, to the kernel
// once, and accounts those that it took. An error stands for the first slot
// that it did not take.
func (s *Sender) send(n int) (int, error) {
	n = min(n, len(s.slots)-s.next)
	accepted, errno := sendmmsg(s.fd, s.msgs[s.next:s.next+n])
	for _, slot := range s.slots[s.next : s.next+accepted] {
		t := &s.tally[slot.stream]
		// One writer: a load and a store of its own would do, and Add is
		// as cheap next to the system call.
		t.packets.Add(1)
		t.bytes.Add(uint64(len(slot.frame)))
	}
	s.next = (s.next + accepted) % len(s.slots)
	if errno != 0 {
		return accepted, errno
	}
	return accepted, nil
}

// Sent returns the frames that the kernel took so far of each stream, in their order. It may be
// called while Run runs, from any goroutine; a stream's packets and bytes are
// of the same moment only when it does not.
func (s *Sender) Sent() []Tally {
	sent := make([]Tally, len(s.tally))
	for i := range s.tally {
		sent[i] = Tally{s.tally[i].packets.Load(), s.tally[i].bytes.Load()}
	}
	return sent
}

// Refused is how often the kernel refused a frame for want of room. Each was
// offered again.
func (s *Sender) Refused() uint64 { return s.refused.Load() }

// Drain waits until no frame of this sender is left in a queue of the kernel:
// each was handed to a program or dropped by one. A program may still be at
// work on the last ones: a native one is given a copy, and the frame is off the
// queue before it runs. Settle waits for that too.
func (s *Sender) Drain(ctx context.Context) error {
	for {
		queued, err := unix.IoctlGetInt(s.fd, unix.SIOCOUTQ)
		if err != nil {
			return fmt.Errorf("reading how much %s has in flight: %w", s.end.Name, err)
		}
		if queued == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %d bytes in flight on %s: %w", queued, s.end.Name, ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

// Settle is Drain, and waits until the programs that were at work have returned: their
// counts are there, however long their CPU was taken from them.
func (s *Sender) Settle(ctx context.Context) error {
	if err := s.Drain(ctx); err != nil {
		return err
	}
	programsReturned()
	return nil
}

// programsReturned waits for the programs that run now. MEMBARRIER_CMD_GLOBAL is an RCU
// grace period (kernel/sched/membarrier.c), and a program runs in one read-side section with
// the end of the frame that it was given a copy of.
func programsReturned() {
	const global = 1 // MEMBARRIER_CMD_GLOBAL of <linux/membarrier.h>
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0); errno != 0 {
		time.Sleep(100 * time.Millisecond) // a kernel with nohz_full refuses it: no bound, but long enough by far
	}
}

// Close closes the socket. Idempotent; not while Run runs.
func (s *Sender) Close() error {
	if s.fd < 0 {
		return nil
	}
	err := unix.Close(s.fd)
	s.fd = -1
	return err
}
