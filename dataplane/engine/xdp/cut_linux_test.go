package xdp

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/internal/lab/times"
	"github.com/flowtally/flowtally/internal/oracle"
	"github.com/flowtally/flowtally/internal/oracle/gen"
	"github.com/flowtally/flowtally/xdp"
)

// Headers may end anywhere in a socket buffer, in its linear part or in its fragments. The test sends such buffers over random
// sets of flows, and compares each count with the oracle.
func TestTCXCountsHeadersInFragmentsLikeTheOracle(t *testing.T) {
	need.BPF(t)
	need.Netns(t)
	need.TCX(t)
	t.Run("ingress", func(t *testing.T) { countCut(t, flow.Ingress) })
	t.Run("egress", func(t *testing.T) { countCut(t, flow.Egress) })
}

func countCut(t *testing.T, dir flow.Direction) {
	const packets = 100
	sets := times.Brief(60, 10)
	rng := rand.New(rand.NewPCG(seed.Uint64(t), 0))

	wire, err := lab.NewWire(lab.WireOptions{Pair: lab.PairOptions{MTU: 9000}})
	if err != nil {
		t.Fatal(err)
	}
	defer wire.Close()

	from := wire.Far
	if dir == flow.Egress {
		from = wire.Near
	}
	socket, err := from.NewVnetSocket()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()

	d := differ{dir: dir, mode: xdp.ModeTCX}
	if err := wire.Near.NS.Do(func() error { return d.open(t, wire.Near.Name, wire.Near.Index) }); err != nil {
		t.Fatal(err)
	}
	defer d.rules.Destroy()

	// Hardly any packet may hit the flows of the first ten sets. Then draw more.
	enough := sets * packets / 8
	hits, drawn := 0, 0
	for ; drawn < sets || hits < enough && drawn < 10*sets; drawn++ {
		if err := wire.Near.NS.Do(func() error { return d.install(gen.Flows(rng, 1+rng.IntN(40))) }); err != nil {
			t.Fatal(err)
		}

		matcher := oracle.New(d.flows)
		want := slices.Clone(d.before)
		for range packets {
			frame := gen.Packet(rng, d.flows)
			frame = slices.Concat(frame, make([]byte, max(0, 4200-len(frame)))) // below a page, a socket buffer is linear

			p := oracle.Packet{Frame: frame[:copied], Direction: dir, Interface: wire.Near.Name}
			var refused error
			if i, ok := matcher.Match(p); ok {
				hits++
				want[i].Packets++
				want[i].Bytes += uint64(len(frame))
				if dir == flow.Egress && d.flows[i].Action == flow.Drop {
					refused = unix.ENOBUFS // send reports the drop by this error
				}
			}

			header := lab.VnetHeader{HeaderLen: uint16(14 + rng.IntN(60))}
			if err := socket.Send(header.Buffer(frame)); !errors.Is(err, refused) {
				t.Fatalf("%v, want %v", err, refused)
			}
		}
		d.await(t, want)
	}
	t.Logf("%d sets of flows, %d packets, %d of them hit", drawn, drawn*packets, hits)
	if hits < enough {
		t.Errorf("only %d packets hit a flow: the test looks at little", hits)
	}
}

// await waits until the counters are at want.
func (d *differ) await(t *testing.T, want []xdp.Pair) {
	t.Helper()

	got := make([]xdp.Pair, len(want))
	lab.Eventually(t, "the counts of the matcher", func() bool {
		if err := d.rules.Read(d.counters, got); err != nil {
			t.Fatal(err)
		}
		if slices.Equal(got, want) {
			return true
		}
		for i := range got {
			if got[i].Packets > want[i].Packets {
				t.Fatalf("flow %d (%s): counted %+v, want %+v", i, d.flows[i].Match, got[i], want[i])
			}
		}
		return false
	})
}
