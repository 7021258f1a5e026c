package lab

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/flowtally/flowtally/internal/lab/frame"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/times"
)

// testStreams are frames of several sizes that the receiving stack ignores:
// they are addressed to another host.
func testStreams() []Stream {
	eth := frame.Eth{Dst: [6]byte{2, 0, 0, 0, 0, 1}, Src: [6]byte{2, 0, 0, 0, 0, 2}}
	ip := frame.IPv4{Src: frame.Addr("198.51.100.1"), Dst: frame.Addr("192.0.2.1")}
	var streams []Stream
	for i, size := range []int{60, 61, 590, 1514} {
		streams = append(streams, Stream{
			Name: fmt.Sprint(size), Weight: i + 1,
			Frames: [][]byte{
				frame.Sized(size, eth, ip, frame.UDP{Src: 1, Dst: 2}),
				frame.Sized(size, eth, frame.VLAN{ID: 5}, ip, frame.UDP{Src: 1, Dst: 3}),
			},
		})
	}
	return streams
}

func sum(tallies ...[]Tally) (t Tally) {
	for _, list := range tallies {
		for _, one := range list {
			t.Packets += one.Packets
			t.Bytes += one.Bytes
		}
	}
	return t
}

// Every frame that the kernel took reaches the XDP program, and no other: with
// one sender and with two that overflow the receiver's ring, whatever becomes
// of the frames.
func TestSentIsCounted(t *testing.T) {
	const drop, pass = 1, 2
	for _, tc := range []struct {
		name    string
		mode    link.XDPAttachFlags
		verdict int32
		stack   bool
		senders int
		queues  int
		spin    int32
	}{
		{"native", link.XDPDriverMode, pass, false, 1, 1, 0},
		{"native through the stack", link.XDPDriverMode, pass, true, 1, 1, 0},
		{"native drop", link.XDPDriverMode, drop, false, 1, 1, 0},
		{"native two senders one ring", link.XDPDriverMode, pass, false, 2, 1, 0},
		{"native two senders two rings", link.XDPDriverMode, pass, false, 2, 2, 0},
		{"native two senders through the stack", link.XDPDriverMode, pass, true, 2, 1, 0},
		{"generic", link.XDPGenericMode, pass, false, 1, 1, 0},
		{"generic drop", link.XDPGenericMode, drop, false, 1, 1, 0},
		{"generic two senders", link.XDPGenericMode, pass, false, 2, 1, 0},
		{"generic two senders through the stack", link.XDPGenericMode, pass, true, 2, 1, 0},
		// A consumer too slow for two CPUs of senders, whose sockets may have
		// more in flight than fits.
		{"native overflow", link.XDPDriverMode, drop, false, 2, 1, 10_000},
		{"native overflow through the stack", link.XDPDriverMode, drop, true, 2, 1, 10_000},
		{"generic slow", link.XDPGenericMode, drop, false, 2, 1, 10_000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			need.CPUs(t, tc.senders)
			w := wire(t, WireOptions{Pair: PairOptions{Queues: tc.queues}})
			c := xdpCounter(t, w.Near, tc.mode, tc.verdict, tc.spin)
			packets, buffer := times.Brief(uint64(200_000), 20_000), 0
			if tc.spin != 0 {
				packets, buffer = 20_000, 64<<20
			}
			var senders []*Sender
			for i := range tc.senders {
				s, err := w.Far.NewSender(testStreams(), SenderOptions{Stack: tc.stack, CPU: i + 1, Seed: uint64(i), SendBuffer: buffer})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				senders = append(senders, s)
			}
			start := time.Now()
			overflow := tc.spin != 0 && tc.mode == link.XDPDriverMode
			var sent Tally
			var refused uint64
			// The ring overflows when the senders run at the same time, which is the scheduler's to say.
			for rounds := uint64(1); rounds == 1 || overflow && refused == 0; rounds++ {
				if rounds > 100 {
					t.Fatal("nothing was refused: the ring did not overflow, the case shows nothing")
				}
				var wg sync.WaitGroup
				for _, s := range senders {
					wg.Go(func() {
						if err := s.Run(context.Background(), packets); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				sent, refused = Tally{}, 0
				for _, s := range senders {
					one := sum(s.Sent())
					if one.Packets != rounds*packets {
						t.Fatalf("a sender sent %d packets, want %d", one.Packets, rounds*packets)
					}
					sent = sum([]Tally{sent, one})
					refused += s.Refused()
				}
			}
			took := time.Since(start)
			for _, s := range senders {
				if err := s.Settle(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if got := c.read(t); got != sent {
				t.Errorf("counted %+v, sent %+v", got, sent)
			}
			t.Logf("%.2f Mpps, refused %d times", float64(sent.Packets)/took.Seconds()/1e6, refused)
		})
	}
}
