package vethrows

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/bench"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/classbench"
	"github.com/flowtally/flowtally/probe"
	"github.com/flowtally/flowtally/xdp"
)

// site is a namespace of pairs, and the sender.
type site struct {
	open *bench.Closers
	ns   *lab.Netns
	send *ebpf.Collection
	used int // pairs
}

func newSite(open *bench.Closers) (*site, error) {
	s := &site{open: open}
	var err error
	if s.ns, err = lab.NewNetns(""); err != nil {
		return nil, err
	}
	open.Add(s.ns.Close)
	spec, err := loadSend()
	if err != nil {
		return nil, fmt.Errorf("reading the sender's object: %w", err)
	}
	if s.send, err = ebpf.NewCollection(spec); err != nil {
		return nil, fmt.Errorf("loading the sender's object: %w", err)
	}
	open.Add(func() error { s.send.Close(); return nil })
	return s, nil
}

// pair makes a veth pair and returns its two ends.
func (s *site) pair() (near, far *lab.End, err error) {
	name := fmt.Sprintf("v%d", s.used)
	s.used++
	p, err := lab.NewPair(s.ns, s.ns, name, name+"far", lab.PairOptions{})
	if err != nil {
		return nil, nil, err
	}
	return p.A, p.B, nil
}

// counting puts a table that counts each port on the ingress hook of a new pair. It sends packets, and compares what
// the table has counted. A site has one such table.
func (s *site) counting(rules ruleset, verdict string) (bench.Side, error) {
	side, err := s.nft(rules, verdict, ports)
	if err != nil {
		return nil, err
	}
	const each = 2
	if _, err := side(context.Background(), each*ports); err != nil {
		return nil, err
	}

	counts, err := s.nftCounts()
	if err != nil {
		return nil, err
	}
	if len(counts) != ports {
		return nil, fmt.Errorf("nftables has %d counters for %d ports", len(counts), ports)
	}
	for _, n := range counts {
		if n != each {
			return nil, fmt.Errorf("a counter of nftables has %d packets, %d were sent to each port", n, each)
		}
	}
	return side, nil
}

// nftCounts lists the packets of the counters of all tables.
func (s *site) nftCounts() (counts []int, err error) {
	var out []byte
	err = s.ns.Do(func() (err error) {
		out, err = exec.Command("nft", "list", "ruleset").Output()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("nft list ruleset: %w", err)
	}
	for _, after := range strings.Split(string(out), "packets ")[1:] {
		var packets, bytes int
		if n, _ := fmt.Sscanf(after, "%d bytes %d", &packets, &bytes); n == 2 {
			counts = append(counts, packets)
		}
	}
	return counts, nil
}

// nft puts a table on the ingress hook of a new pair.
func (s *site) nft(rules ruleset, verdict string, n int) (bench.Side, error) {
	program, err := exec.LookPath("nft")
	if err != nil {
		return nil, &probe.UnsupportedError{
			Feature: "nftables",
			Reason:  "nft is not on PATH",
			Fix:     "install nftables, as make bench does",
		}
	}
	near, far, err := s.pair()
	if err != nil {
		return nil, err
	}

	var said bytes.Buffer
	cmd := exec.Command(program, "-f", "-")
	cmd.Stdin = strings.NewReader(rules(near.Name, verdict, n))
	cmd.Stderr = &said
	if err := s.ns.Do(cmd.Run); err != nil {
		return nil, fmt.Errorf("nft: %w: %.200s", err, said.String())
	}
	return s.side(far, n), nil
}

// dropAll puts a program on native XDP of a new pair that drops every packet and does no more.
func (s *site) dropAll() (bench.Side, error) {
	near, far, err := s.pair()
	if err != nil {
		return nil, err
	}
	return s.side(far, ports), s.ns.Do(func() error {
		l, err := link.AttachXDP(link.XDPOptions{
			Program:   s.send.Programs["drop_all"],
			Interface: near.Index,
			Flags:     link.XDPDriverMode,
		})
		if err != nil {
			return fmt.Errorf("attaching a program that drops: %w", err)
		}
		s.open.Add(l.Close)
		return nil
	})
}

// flows attaches a flow for each port to a new pair. The counters tell how many packets they have seen.
func (s *site) flows(match func(port int) xdp.Rule, drop bool, mode xdp.Mode) (bench.Side, *counted, error) {
	near, far, err := s.pair()
	if err != nil {
		return nil, nil, err
	}
	rs, err := xdp.Open(xdp.Options{MaxRules: ports})
	if err != nil {
		return nil, nil, err
	}
	s.open.Add(rs.Destroy)
	c := &counted{rules: rs}
	list := make([]xdp.Rule, ports)
	for i := range list {
		counter, err := rs.AllocCounter(fmt.Sprint("flow-", i))
		if err != nil {
			return nil, nil, err
		}
		c.ids = append(c.ids, counter.ID)
		list[i] = match(firstPort + i)
		list[i].Order = uint32(i)
		list[i].Counter = counter.ID
		list[i].Drop = drop
	}
	if err := rs.Add(list...); err != nil {
		return nil, nil, err
	}
	err = s.ns.Do(func() error {
		_, err := rs.Attach(near.Name, xdp.AttachOptions{Mode: mode, Ingress: true})
		return err
	})
	return s.side(far, ports), c, err
}

// ofPort matches UDP packets to a port, on ingress.
func ofPort(port int) (r xdp.Rule) {
	k, m := &r.Key.Out, &r.Mask.Out
	k.Flags = xdp.FlagIPv4 | xdp.FlagL4
	m.Flags = xdp.FlagIPv4 | xdp.FlagL4 | xdp.FlagEgress
	k.Proto, m.Proto = unix.IPPROTO_UDP, 0xff
	binary.BigEndian.PutUint16(k.L4[2:], uint16(port))
	binary.BigEndian.PutUint16(m.L4[2:], 0xffff)
	return r
}

// ofSource matches UDP packets from source to a port, on ingress.
func ofSource(port int) xdp.Rule {
	r := ofPort(port)
	address := netip.MustParseAddr(source).As4()
	copy(r.Key.Out.Addr[:], address[:])
	copy(r.Mask.Out.Addr[:], []byte{255, 255, 255, 255})
	return r
}

// bare is a pair without a hook.
func (s *site) bare() (bench.Side, error) {
	_, far, err := s.pair()
	if err != nil {
		return nil, err
	}
	return s.side(far, ports), nil
}

// side sends packets out of an end, to so many ports.
func (s *site) side(from *lab.End, targets int) bench.Side {
	frame := classbench.Packet{
		Src:     0x0a000001,
		Dst:     0x0a000002,
		SrcPort: 1,
		DstPort: firstPort,
		Proto:   unix.IPPROTO_UDP,
	}.Frame()
	return func(_ context.Context, n int) (float64, error) {
		err := errors.Join(
			s.send.Variables["send_to"].Set(uint32(from.Index)),
			s.send.Variables["send_ports"].Set(uint32(targets)),
		)
		if err != nil {
			return 0, fmt.Errorf("setting the interface and the ports of the sender: %w", err)
		}

		var ns float64
		err = s.inside(func() (err error) {
			var ran error
			ns, err = bench.Timed(bench.ThreadCPU, func(n int) {
				_, ran = s.send.Programs["send_packet"].Run(&ebpf.RunOptions{Data: frame, Repeat: uint32(n)})
			})(context.Background(), n)
			return errors.Join(err, ran)
		})
		if err != nil {
			return 0, fmt.Errorf("sending %d packets: %w", n, err)
		}

		var refused uint64
		if err := s.send.Variables["send_refused"].Get(&refused); err != nil {
			return 0, fmt.Errorf("reading how many packets were refused: %w", err)
		}
		if refused != 0 {
			return 0, fmt.Errorf("sending %d packets: %d were refused", n, refused)
		}
		return ns, nil
	}
}

// inside runs f in the site's namespace, on the calling thread, which the runner has locked: the kernel looks the
// number of an interface up in the namespace of the thread. No signal reaches the thread meanwhile, because a signal
// ends a test run early.
func (s *site) inside(f func() error) error {
	home, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening the thread's network namespace: %w", err)
	}
	defer unix.Close(home)
	there, err := unix.Open(s.ns.Path(), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening the network namespace of the pairs: %w", err)
	}
	defer unix.Close(there)
	if err := unix.Setns(there, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering the network namespace of the pairs: %w", err)
	}
	err = bench.WithoutSignals(f)
	if back := unix.Setns(home, unix.CLONE_NEWNET); back != nil {
		panic(fmt.Sprintf("returning to the network namespace of the process: %v", back)) // the thread serves others
	}
	return err
}

// counted are the counters of flows.
type counted struct {
	rules *xdp.Datapath
	ids   []uint32
}

func (c *counted) packets() (sum uint64, err error) {
	v := make([]xdp.Pair, len(c.ids))
	err = c.rules.Read(c.ids, v)
	for _, p := range v {
		sum += p.Packets
	}
	return sum, err
}
