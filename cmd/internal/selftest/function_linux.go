package selftest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// function sends frames on another function of a NIC in switchdev mode. The e-switch gives the frames of one EtherType
// to the host, and by a rule of the user it forwards those of the other one past the host. The device must count exactly
// the frames that the kernel sees on the interface: on a representor those of its function, on the uplink none.
func (r *run) function(ctx context.Context) error {
	if r.Switchdev == "" {
		return nil
	}
	var from *net.Interface
	reason := "--function NAME names an interface on this host of a virtual function of the NIC"
	if r.Function != "" {
		var err error
		if from, err = net.InterfaceByName(r.Function); err != nil {
			reason = fmt.Sprintf("interface %s: %v", r.Function, err)
		} else if len(from.HardwareAddr) != 6 {
			from, reason = nil, r.Function+" has no Ethernet header"
		}
	}
	if from == nil {
		r.rep.add(notTested(toHost, reason))
		r.rep.add(notTested(pastHost, reason))
		return nil
	}

	frames := batch{from: from, to: from.HardwareAddr, number: rand.Uint64(), total: r.Count}
	frames.etherType = EtherType
	arrived, err := r.functionPart(ctx, toHost, frames)
	if err != nil {
		return err
	}
	if !arrived { // then it means nothing if those of the other EtherType do not arrive
		r.rep.add(notTested(pastHost, "no frame of "+r.Function+" has arrived without a rule, see "+toHost))
		return nil
	}
	frames.etherType = pastEtherType
	_, err = r.functionPart(ctx, pastHost, frames)
	return err
}

// functionPart sends the frames of one EtherType. arrived reports whether one of them came to an interface of this host.
func (r *run) functionPart(ctx context.Context, name string, frames batch) (arrived bool, err error) {
	p := Part{Name: name, Received: new(uint64), untagged: true}

	// Open the socket before adding the flows, so that it receives every frame that they count.
	l, err := listen(frames)
	if err != nil {
		return false, err
	}
	defer l.close()
	var flows []flow.Flow
	var refused Part
	for _, d := range []flow.Direction{flow.Ingress, flow.Egress} {
		f := r.functionFlow(name, frames, d)
		err := r.add(ctx, &p, f)
		if err == nil {
			flows = append(flows, f)
			continue
		}
		if refused = notAdded(name, err); !refused.refused {
			r.rep.add(refused)
			return false, nil
		}
	}
	if len(flows) == 0 { // it takes no flow at all, or is lost: then nothing before it is decided, either
		refused.refused = false
		r.rep.add(refused)
		return true, nil
	}
	if err := p.send(ctx, frames); err != nil {
		if ctx.Err() == nil {
			r.rep.add(notTested(name, err.Error()))
		}
		return false, ctx.Err()
	}

	seen, err := l.settled(ctx, r.Quiet)
	if err != nil {
		return false, err
	}
	counted := make(map[flow.Direction]uint64)
	for _, f := range flows {
		v, err := r.settled(ctx, r.mirror, flowPrefix+f.Name)
		if err != nil {
			return false, err
		}
		counted[f.Direction] = v.Packets
		p.CountedBytes += v.Bytes
	}
	arrived = p.judgeFunction(r.ifi, seen, counted)
	r.rep.add(p)
	return arrived, nil
}

// functionFlow returns the flow of the frames in one direction of the interface.
func (r *run) functionFlow(part string, frames batch, d flow.Direction) flow.Flow {
	own := flow.MAC{Addr: [6]byte(frames.from.HardwareAddr), Mask: [6]byte{255, 255, 255, 255, 255, 255}}
	return flow.Flow{
		Name: strings.ReplaceAll(part, " ", "-") + "-" + d.String(), Direction: d,
		Match: flow.Match{Eth: &flow.Eth{Src: own, Dst: own, Type: flow.Masked[uint16]{Value: frames.etherType, Mask: 0xffff}}},
	}
}

// passed is how many frames have passed an interface in each direction.
type passed struct{ in, out uint64 }

// judgeFunction compares the counts with what the kernel saw on the interface, in the directions whose flows the device takes.
// seen has the interfaces that frames have passed, by their index, without that of the function. It returns whether a frame
// came to one of them.
func (p *Part) judgeFunction(ifi *net.Interface, seen map[int]passed, counted map[flow.Direction]uint64) bool {
	p.Result = Exact
	for d, n := range counted {
		here := seen[ifi.Index].in
		way := "came in"
		if d == flow.Egress {
			here = seen[ifi.Index].out
			way = "went out"
		}
		*p.Received += here
		p.Counted += n
		if n != here {
			p.Result = Differs
			p.Reason = fmt.Sprintf("%d frames %s on %s, and the device has counted %d", here, way, ifi.Name, n)
		}
	}

	var at []string // where frames came in
	for index, n := range seen {
		if n.in > 0 {
			at = append(at, nameOf(index))
		}
	}
	slices.Sort(at)
	switch {
	case p.Result == Differs:
	case p.Dropped > 0: // before the e-switch had them: that they are not counted means nothing
		p.Result = NotTested
		p.Reason = fmt.Sprintf("the kernel has dropped %d of the frames before they left", p.Dropped)
	case p.Name == toHost && len(at) == 0:
		p.Result = NotTested
		p.Reason = "no frame has arrived at an interface of this host: does a rule of the e-switch forward them, or is --function no function of this NIC?"
	case p.Name == pastHost && len(at) > 0:
		p.Result = NotTested
		p.Reason = fmt.Sprintf("the frames have arrived at %s. Let the e-switch forward them, and test again: tc qdisc add dev %s clsact; tc filter add dev %s ingress protocol %#04x pref 88 flower skip_sw action mirred egress redirect dev UPLINK",
			strings.Join(at, ", "), at[0], at[0], pastEtherType)
	case p.Name == toHost:
		p.Reason = "arrived at " + strings.Join(at, ", ")
	}
	return len(at) > 0
}

// nameOf returns the name of an interface, or its index if it is gone.
func nameOf(index int) string {
	l, err := netlink.LinkByIndex(index)
	if err != nil {
		return fmt.Sprintf("interface %d", index)
	}
	return l.Attrs().Name
}

// listener counts the frames of a batch on all interfaces of the network namespace.
type listener struct {
	fd     int
	frames batch
	stop   chan struct{}
	ended  sync.WaitGroup

	mu   sync.Mutex
	seen map[int]passed // by the index of the interface, without that of the function
	last time.Time      // when the last frame came
	err  error
}

// listen opens a socket that takes no other packet of the host, and reads it until close.
func listen(frames batch) (*listener, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) // of protocol 0: it receives nothing yet
	if err != nil {
		return nil, fmt.Errorf("opening a packet socket: %w", err)
	}
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 12},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(frames.etherType), Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 256}, // the heads of a frame and of its payload
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000})
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
	err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL)})
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("binding a packet socket: %w", err)
	}

	l := &listener{fd: fd, frames: frames, stop: make(chan struct{}), seen: make(map[int]passed), last: time.Now()}
	l.ended.Go(l.read)
	return l, nil
}

// read counts frames until close.
func (l *listener) read() {
	b := make([]byte, 256)
	for {
		select {
		case <-l.stop:
			return
		default:
		}
		n, from, err := unix.Recvfrom(l.fd, b, 0)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		l.mu.Lock()
		if err != nil {
			l.err = fmt.Errorf("receiving frames: %w", err)
		} else if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Ifindex != l.frames.from.Index && l.frames.has(b[:n]) {
			at := l.seen[ll.Ifindex]
			if ll.Pkttype == unix.PACKET_OUTGOING {
				at.out++
			} else {
				at.in++
			}
			l.seen[ll.Ifindex] = at
			l.last = time.Now()
		}
		l.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// has reports whether a frame belongs to the batch. It has no tag.
func (t *batch) has(b []byte) bool {
	head := binary.BigEndian.AppendUint16(append(append([]byte(nil), t.to...), t.from.HardwareAddr...), t.etherType)
	head = append(head, magic...)
	head = binary.BigEndian.AppendUint64(head, t.number)
	return bytes.HasPrefix(b, head)
}

// settled returns what has passed the interfaces, when no frame has come for the time quiet.
func (l *listener) settled(ctx context.Context, quiet time.Duration) (map[int]passed, error) {
	for since := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
		l.mu.Lock()
		last, err := l.last, l.err
		l.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if time.Since(since) < quiet || time.Since(last) < quiet {
			continue
		}
		stats, err := unix.GetsockoptTpacketStats(l.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
		if err != nil {
			return nil, fmt.Errorf("reading the statistics of a packet socket: %w", err)
		}
		if stats.Drops > 0 {
			return nil, fmt.Errorf("receiving frames: the socket had no room for %d of them: use a lower --count", stats.Drops)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		return maps.Clone(l.seen), nil // a late frame still changes the map
	}
}

// close ends reading.
func (l *listener) close() {
	close(l.stop)
	l.ended.Wait()
	unix.Close(l.fd)
}
