package demo

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
)

// link is one veth pair, the flows counted on its near end and their senders.
type link struct {
	name         string // prefix of its flows' names
	mode         Mode
	near, far    *lab.End
	near4, near6 netip.Addr // of the near end
	far6         netip.Addr
	flows        []flow.Flow
	senders      []*lab.Sender
	streams      [][]lab.Stream // of each sender

	mu       sync.Mutex
	observed map[string]lab.Tally // of the kernel's TCP, by flow
}

// streamBytes is the payload of each of the kernel's TCP streams.
const streamBytes = 16 << 20

// egressRate in frames per second. TCX counts a frame before the driver may
// refuse it, so that egress is sent well below the driver's rate.
const egressRate = 20_000

// nicRate bounds each sender to a NIC that is a program: one thread parses
// every frame there, beside the kernel's own work.
const nicRate = 25_000

// build makes the namespaces, one link per XDP mode, or one for a NIC, and its senders.
func build(o Options, cleanup *cleaner) ([]*link, error) {
	kinds := []link{{name: "rdma", mode: Native}}
	rate := cmp.Or(o.Rate, nicRate)
	if o.Backend != "rdma" {
		kinds, rate = nil, o.Rate
		for _, m := range o.Mode.modes() {
			kinds = append(kinds, link{name: string(m), mode: m})
		}
	}
	near, err := lab.CurrentNetns()
	if err != nil {
		return nil, err
	}
	cleanup.add(near.Close)
	far, err := lab.NewNetns("")
	if err != nil {
		return nil, err
	}
	cleanup.add(far.Close)
	var links []*link
	for i := range kinds {
		l := &kinds[i]
		pair, err := lab.NewPair(near, far, "ft-"+l.name, "far-"+l.name, lab.PairOptions{})
		if err != nil {
			return nil, err
		}
		cleanup.add(pair.Close)
		l.near, l.far, l.observed = pair.A, pair.B, map[string]lab.Tally{}
		if err := l.address(byte(i + 1)); err != nil {
			return nil, err
		}
		if err := l.load(2/len(kinds), rate, o.Verbs, cleanup); err != nil {
			return nil, err
		}
		links = append(links, l)
	}
	return links, nil
}

// address gives both ends addresses of subnet n for the kernel's TCP.
func (l *link) address(n byte) error {
	l.near4 = netip.AddrFrom4([4]byte{10, 200, n, 1})
	far4 := netip.AddrFrom4([4]byte{10, 200, n, 2})
	l.near6 = netip.MustParseAddr(fmt.Sprintf("fd00:f10:%d::1", n))
	l.far6 = netip.MustParseAddr(fmt.Sprintf("fd00:f10:%d::2", n))
	for _, do := range []func() error{
		func() error { return l.near.AddAddr(netip.PrefixFrom(l.near4, 24)) },
		func() error { return l.far.AddAddr(netip.PrefixFrom(far4, 24)) },
		func() error { return l.near.AddAddr(netip.PrefixFrom(l.near6, 64)) },
		func() error { return l.far.AddAddr(netip.PrefixFrom(l.far6, 64)) },
		func() error { return l.far.AddNeighbor(l.near4, l.near.MAC) },
		func() error { return l.near.AddNeighbor(far4, l.far.MAC) },
		func() error { return l.far.AddNeighbor(l.near6, l.near.MAC) },
		func() error { return l.near.AddNeighbor(l.far6, l.far.MAC) },
		// Cut on the way in, so that XDP sees the frames of a wire; left
		// to the device on the way out, where TCX has to do the sum.
		func() error { return l.far.SetOffload(false, lab.TSO, lab.GSO) },
		func() error { return l.near.SetOffload(true, lab.TxCsum, lab.GSO, lab.TSO) },
	} {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// load declares the flows, without those for DevX alone where verbs count, and opens the senders: that many at the
// given rate from the far end, and one at a modest rate from the near end.
func (l *link) load(senders, rate int, verbs bool, cleanup *cleaner) error {
	counted := func(all []traffic) []traffic {
		return slices.DeleteFunc(all, func(t traffic) bool { return verbs && t.devx })
	}
	in, inStreams, err := declare(l.name, l.near.Name, flow.Ingress, counted(ingress()))
	if err != nil {
		return err
	}
	out, outStreams, err := declare(l.name, l.near.Name, flow.Egress, counted(egress()))
	if err != nil {
		return err
	}
	l.flows = append(in, out...)
	open := func(end *lab.End, streams []lab.Stream, o lab.SenderOptions) error {
		s, err := end.NewSender(streams, o)
		if err != nil {
			return err
		}
		cleanup.add(s.Close)
		l.senders, l.streams = append(l.senders, s), append(l.streams, streams)
		return nil
	}
	for i := range senders {
		if err := open(l.far, inStreams, lab.SenderOptions{Rate: rate, Seed: uint64(i)}); err != nil {
			return err
		}
	}
	return open(l.near, outStreams, lab.SenderOptions{Stack: true, Rate: egressRate})
}

// stream runs the kernel's TCP both ways, each observed where it leaves.
func (l *link) stream(ctx context.Context) error {
	for _, s := range []struct {
		name     string
		from, to *lab.End
		dst      netip.AddrPort
		merged   bool // leaves in buffers of many segments
	}{
		{"tcp-stream", l.far, l.near, netip.AddrPortFrom(l.near4, ingressPort), false},
		{"egress-tcp-stream", l.near, l.far, netip.AddrPortFrom(l.far6, egressPort), true},
	} {
		o, err := s.from.Observe(s.dst.Port(), true)
		if err != nil {
			return err
		}
		bounded, cancel := context.WithTimeout(ctx, time.Minute)
		_, err = lab.StreamTCP(bounded, s.from, s.to, s.dst, streamBytes)
		cancel()
		seen, stopErr := o.Stop()
		l.mu.Lock()
		l.observed[l.name+"/"+s.name] = seen
		l.mu.Unlock()
		if err == nil {
			err = stopErr
		}
		if err == nil && (o.Merged() > 0) != s.merged {
			err = fmt.Errorf("stream %s: %d buffers of several segments left %s; want any: %t (ethtool -k shows tso and gso)",
				s.name, o.Merged(), s.from.Name, s.merged)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sent returns the packets and bytes sent so far, by flow.
func (l *link) sent() map[string]lab.Tally {
	all := map[string]lab.Tally{}
	for i, s := range l.senders {
		for j, t := range s.Sent() {
			sum := all[l.streams[i][j].Name]
			all[l.streams[i][j].Name] = lab.Tally{Packets: sum.Packets + t.Packets, Bytes: sum.Bytes + t.Bytes}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, t := range l.observed {
		all[name] = t
	}
	return all
}
