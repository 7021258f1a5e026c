package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/frame"
	"github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/internal/lab/times"
	"github.com/flowtally/flowtally/shm"
)

// Flows come and go while traffic flows, over masks that are there already and
// over new ones: the flows that stay count every packet, once.
func TestChurnInTrafficLosesNoPacketOfTheFlowsThatStay(t *testing.T) {
	needLab(t)
	rng := seed.Rand(t)
	b := newBench(t, time.Hour,
		flow.Flow{Name: "udp", Match: match(t, "ipv4 src 198.51.100.0/24 udp dport 53"), Priority: 5},
		flow.Flow{Name: "tcp", Match: match(t, "ipv6 tcp dport 443"), Priority: 5})
	ip4 := frame.IPv4{Src: frame.Addr("198.51.100.9"), Dst: frame.Addr("192.0.2.10")}
	ip6 := frame.IPv6{Src: frame.Addr("2001:db8::1"), Dst: frame.Addr("2001:db8::2")}
	streams := []lab.Stream{
		{Name: "udp", Frames: [][]byte{frame.Sized(70, eth, ip4, frame.UDP{Src: 4000, Dst: 53})}},
		{Name: "tcp", Frames: [][]byte{frame.Sized(90, eth, ip6, frame.TCP{Src: 4000, Dst: 443})}},
	}
	s, err := b.far.NewSender(streams, lab.SenderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()

	traffic, stop := context.WithCancel(t.Context())
	sent := make(chan error, 1)
	go func() { sent <- s.Run(traffic, 0) }()
	changes := churn(t, b, rng, times.Brief(6*time.Second, time.Second))
	stop()
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, want := range s.Sent() {
		if got := final(t, b, streams[i].Name); got != want {
			t.Errorf("%s: counted %+v, sent %+v", streams[i].Name, got, want)
		}
	}
	t.Logf("%d changes while %+v were sent", changes, s.Sent())
}

// churn adds and removes flows for a time: some that overlap those that stay,
// at a worse priority, some that match nothing of the traffic at a better one.
func churn(t *testing.T, b *bench, rng *rand.Rand, span time.Duration) int {
	t.Helper()
	texts := []func() string{
		func() string { return fmt.Sprintf("ipv4 src 10.%d.0.0/16 udp dport 53", rng.IntN(256)) },
		func() string {
			return fmt.Sprintf("ipv4 dst 203.0.113.%d tcp dport %d", rng.IntN(256), 1+rng.IntN(65535))
		},
		func() string { return fmt.Sprintf("ipv6 src 2001:db8:%x::/%d", rng.IntN(1<<16)|1, 48+rng.IntN(8)) },
		func() string { return fmt.Sprintf("vlan id %d ipv4", 1+rng.IntN(4000)) },
	}
	var there []string
	changes := 0
	for end := time.Now().Add(span); time.Now().Before(end); changes++ {
		if len(there) > 6 || len(there) > 0 && rng.IntN(2) == 0 {
			n := 1 + rng.IntN(len(there))
			if err := b.client.RemoveFlows(t.Context(), there[:n]...); err != nil {
				t.Fatalf("removing %q: %v", there[:n], err)
			}
			there = there[n:]
			continue
		}
		var flows []flow.Flow
		for i := range 1 + rng.IntN(3) {
			f := flow.Flow{Name: fmt.Sprintf("churn-%d-%d", changes, i), Match: match(t, texts[rng.IntN(len(texts))]()), Priority: uint16(1 + rng.IntN(3))}
			if rng.IntN(3) == 0 {
				f.Match, f.Priority = match(t, "ipv4 udp"), 9 // loses against udp
			}
			flows = append(flows, f)
			there = append(there, f.Name)
		}
		if _, err := b.client.AddFlows(t.Context(), flows...); err != nil {
			t.Fatalf("adding %d flows: %v", len(flows), err)
		}
	}
	return changes
}

// final waits for a value that stands still and returns it.
func final(t *testing.T, b *bench, name string) lab.Tally {
	t.Helper()
	r, err := shm.OpenReader(b.info.Mirror)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	h, err := r.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	c, err := r.Counter(h)
	if err != nil {
		t.Fatal(err)
	}
	after := shm.Now()
	var last shm.Value
	for still := 0; still < 10; time.Sleep(15 * time.Millisecond) {
		v, err := c.Load()
		if err != nil {
			t.Fatal(err)
		}
		if v.SampledAt <= after || v.Packets != last.Packets {
			still = 0
		} else {
			still++
		}
		if last = v; shm.Now()-after > int64(patience) {
			t.Fatalf("%s was last sampled %v before the wait began, or never stands still", name, time.Duration(after-v.SampledAt))
		}
	}
	return lab.Tally{Packets: last.Packets, Bytes: last.Bytes}
}
