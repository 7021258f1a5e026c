//go:build cgo

package ibv

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
)

// receivers are UDP sockets of the kernel at the near end, one per port from first on.
func (b *devxBench) receivers(first, n int) []*net.UDPConn {
	b.t.Helper()
	at := netip.MustParseAddr("10.9.0.1")
	b.check(b.wire.Near.AddAddr(netip.PrefixFrom(at, 24)))
	conns := make([]*net.UDPConn, n)
	b.check(b.wire.Near.NS.Do(func() (err error) {
		for i := range conns {
			if conns[i], err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, uint16(first+i)))); err != nil {
				return err
			}
			b.t.Cleanup(func() { conns[i].Close() })
		}
		return nil
	}))
	return conns
}

// received returns the number of datagrams that wait at c: it reads until want have come, and then
// until the socket is empty.
func received(t *testing.T, c *net.UDPConn, want uint64) (n uint64) {
	t.Helper()
	buf := make([]byte, 2048)
	for {
		patience := 20 * time.Second
		if n >= want {
			patience = time.Microsecond
		}
		c.SetReadDeadline(time.Now().Add(patience))
		_, err := c.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return n
		} else if err != nil {
			t.Fatal(err)
		}
		n++
	}
}

// 128 streams are counted by 128 flows of one bulk. Each counter equals the packets sent, the
// kernel's sockets get every datagram, a rule with lower priority matches no packet, and one
// firmware command reads the whole bulk.
func TestDevXBulkStealsNothing(t *testing.T) {
	b := newDevXBench(t)
	const flows, first, packets = 128, 20000, 100 * 128
	conns := b.receivers(first, flows)
	counters, behind := b.counts(flows), b.counts(1)
	m := must(b.dx.CreateMatcher(MatcherAttr{Mask: udpPortMask()}))(t)
	b.closes(m)
	streams := make([]lab.Stream, flows)
	for i := range streams {
		port := uint16(first + i)
		b.closes(must(m.CreateFlow(udpPort(port), FlowActions{Counters: counters, Offset: uint32(i), DefaultMiss: true}))(t))
		streams[i] = lab.Stream{Name: fmt.Sprint(port), Frames: [][]byte{b.udpTo(port)}}
	}
	b.rule(1, MatchParam{}, MatchParam{}, FlowActions{Counters: behind, DefaultMiss: true})

	s := must(b.wire.Far.NewSender(streams, lab.SenderOptions{}))(t)
	defer s.Close()
	b.check(s.Run(t.Context(), packets))
	b.check(s.Drain(t.Context()))
	want := make([]FlowCount, flows)
	for i, sent := range s.Sent() {
		want[i] = FlowCount{Packets: sent.Packets, Octets: sent.Bytes}
	}

	_, before := b.calls(nil)
	got := make([]FlowCount, flows)
	b.check(counters.Query(got))
	calls, _ := b.calls(before)
	if diff := cmp.Diff(ibvtest.Statistics{"DEVX_OBJ_QUERY": 1, "QUERY_FLOW_COUNTER": 1}, calls); diff != "" {
		t.Errorf("reading %d counters called (-want +got):\n%s", flows, diff)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counted (-sent +counted):\n%s", diff)
	}
	b.wantCounts(behind, FlowCount{})
	for i, c := range conns {
		if n := received(t, c, want[i].Packets); n != want[i].Packets {
			t.Errorf("port %d: the kernel received %d of %d datagrams", first+i, n, want[i].Packets)
		}
	}
}

// The result has 32 KiB. Two of the largest objects need two commands.
func TestDevXLargestBulkIsReadByOneCommand(t *testing.T) {
	b := newDevXBench(t)
	bulks := []*FlowCounters{b.counts(MaxFlowCounters), b.counts(MaxFlowCounters)}
	last := uint32(MaxFlowCounters - 1)
	b.rule(0, MatchParam{}, MatchParam{}, FlowActions{Counters: bulks[1], Offset: last, DefaultMiss: true})
	f := b.udpTo(1)
	b.send(f, repeats)
	_, before := b.calls(nil)
	for i, bulk := range bulks {
		got := make([]FlowCount, bulk.Len())
		b.check(bulk.Query(got))
		want := make([]FlowCount, MaxFlowCounters)
		if i == 1 {
			want[last] = times(repeats, f)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("bulk %d (-want +got):\n%s", i, diff)
		}
	}
	if calls, _ := b.calls(before); calls["QUERY_FLOW_COUNTER"] != 2 {
		t.Errorf("two bulks took %d commands: %v", calls["QUERY_FLOW_COUNTER"], calls)
	}
}

// A counter keeps its value when its flow is closed, and another flow continues from this value.
func TestDevXCountersOutliveFlows(t *testing.T) {
	b := newDevXBench(t)
	counter := b.counts(1)
	m := must(b.dx.CreateMatcher(MatcherAttr{Mask: udpPortMask()}))(t)
	b.closes(m)
	f := b.udpTo(1)
	for round := uint64(1); round <= 2; round++ {
		flow := must(m.CreateFlow(udpPort(1), FlowActions{Counters: counter, DefaultMiss: true}))(t)
		b.send(f, repeats)
		b.check(flow.Close())
		b.send(f, repeats) // no flow counts these
		b.wantCounts(counter, times(round*repeats, f))
	}
}

// Packets leave by the near end, and packets also arrive there.
func TestDevXEgressCountsOnlySentPackets(t *testing.T) {
	b := newDevXBench(t)
	counter := b.counts(1)
	m := must(b.dx.CreateMatcher(MatcherAttr{Mask: udpPortMask(), Egress: true}))(t)
	b.closes(m)
	b.closes(must(m.CreateFlow(udpPort(1), FlowActions{Counters: counter}))(t))
	f := b.udpTo(1)
	b.send(f, repeats)
	b.wantCounts(counter, FlowCount{})
	b.sendFrom(b.wire.Near, f, repeats)
	b.wantCounts(counter, times(repeats, f))
}
