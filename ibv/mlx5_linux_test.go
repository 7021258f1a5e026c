//go:build cgo

package ibv

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab/frame"
	"github.com/flowtally/flowtally/probe"
)

// devxBench is a wire whose near end is the device, open for DevX. Its tests need no queue
// pair.
type devxBench struct {
	*bench
	dx         *DevX
	statistics string
}

func newDevXBench(t *testing.T, env ...string) *devxBench {
	t.Helper()
	return newDevXBenchWith(t, softLibs(t).Shim, env...)
}

// newDevXBenchWith takes a libmlx5, "": the one that the loader finds.
func newDevXBenchWith(t *testing.T, mlx5 string, env ...string) *devxBench {
	t.Helper()
	stats := filepath.Join(t.TempDir(), "calls")
	b := &devxBench{bench: newLibrary(t, newWire(t), "", append(env, "STATISTICS", stats)...), statistics: stats}
	b.lib.opts.MLX5 = mlx5
	b.open()
	b.dx = must(b.ctx.DevX())(t)
	b.closes(b.dx)
	return b
}

// counts makes at least n counters.
func (b *devxBench) counts(n int) *FlowCounters {
	b.t.Helper()
	f := must(b.dx.AllocFlowCounters(n))(b.t)
	b.closes(f)
	return f
}

// rule makes a matcher and a flow under it, from the complete mask and value.
func (b *devxBench) rule(priority uint16, mask, value MatchParam, a FlowActions) {
	b.t.Helper()
	m := must(b.dx.CreateMatcher(MatcherAttr{Mask: mask, Priority: priority}))(b.t)
	b.closes(m)
	b.closes(must(m.CreateFlow(value, a))(b.t))
}

// wantCounts compares the first counters with want.
func (b *devxBench) wantCounts(f *FlowCounters, want ...FlowCount) {
	b.t.Helper()
	got := make([]FlowCount, len(want))
	b.check(f.Query(got))
	if diff := cmp.Diff(want, got); diff != "" {
		b.t.Fatalf("(-want +got):\n%s", diff)
	}
}

// calls returns the calls since the last time, by symbol and by firmware command.
func (b *devxBench) calls(since ibvtest.Statistics) (ibvtest.Statistics, ibvtest.Statistics) {
	b.t.Helper()
	now := must(ibvtest.ReadStatistics(b.statistics))(b.t)
	return now.Sub(since), now
}

// udpTo is a frame to the near end, 60 bytes and more.
func (b *devxBench) udpTo(port uint16) []byte {
	return b.udpFrom([6]byte(b.wire.Far.MAC), port)
}

func (b *devxBench) udpFrom(mac [6]byte, port uint16) []byte {
	return frame.Build(frame.Eth{Dst: [6]byte(b.wire.Near.MAC), Src: mac},
		frame.IPv4{Src: frame.Addr("10.9.0.2"), Dst: frame.Addr("10.9.0.1")}, frame.UDP{Src: 4000, Dst: port}, frame.Payload(26))
}

// times is n packets of a frame.
func times(n uint64, frame []byte) FlowCount {
	return FlowCount{Packets: n, Octets: n * uint64(len(frame))}
}

// udpPort matches a UDP port of the outer headers.
func udpPort(port uint16) MatchParam {
	return MatchParam{Outer: MatchHeaders{IPProtocol: 17, UDPDPort: port}}
}

func udpPortMask() MatchParam {
	return MatchParam{Outer: MatchHeaders{IPProtocol: 0xff, UDPDPort: 0xffff}}
}

// repeats is the number of packets in rdma-core's tests, from which these are translated.
const repeats = 10

// This is test_counter_qp_flow of rdma-core's tests/test_mlx5_flow.py and test_tbl_counter_action
// of test_mlx5_dr.py, without the queue pair, and with the octets.
func TestDevXFlowCountsPacketsAndOctets(t *testing.T) {
	b := newDevXBench(t)
	counter := b.counts(1)
	smac := MatchParam{Outer: MatchHeaders{SMAC: [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}}
	b.rule(0, smac, MatchParam{Outer: MatchHeaders{SMAC: [6]byte(b.wire.Far.MAC)}}, FlowActions{Counters: counter, DefaultMiss: true})
	f := b.udpTo(53)
	b.send(f, repeats)
	b.wantCounts(counter, times(repeats, f))
	b.send(b.udpFrom([6]byte{2, 1, 1, 1, 1, 1}, 53), repeats) // a miss must not count
	b.wantCounts(counter, times(repeats, f))
}

// This is test_counters_bulk_flow. Flow i counts in counter i of one bulk, so after step i the
// counters 0 to i have counted their packets and the others are 0.
func TestDevXFlowsCountAtTheirOffsetsOfABulk(t *testing.T) {
	b := newDevXBench(t)
	const flows = 4
	counters := b.counts(flows)
	m := must(b.dx.CreateMatcher(MatcherAttr{Mask: udpPortMask()}))(t)
	b.closes(m)
	for i := range flows {
		b.closes(must(m.CreateFlow(udpPort(uint16(5000+i)), FlowActions{Counters: counters, Offset: uint32(i), DefaultMiss: true}))(t))
	}
	want := make([]FlowCount, flows)
	for i := range flows {
		f := b.udpTo(uint16(5000 + i))
		b.send(f, repeats)
		want[i] = times(repeats, f)
		b.wantCounts(counters, want...)
	}
}

// This is test_tbl_drop_action. Of two rules the drop rule has priority and a counter. First comes
// the half of the traffic that it does not match, so the counter stays 0. Then it counts the other
// half, and the rule behind it sees none. test_flow_table_drop is the same rule without a counter.
// (The software NIC takes no packet from the kernel.)
func TestDevXDropRuleCountsWhatItDrops(t *testing.T) {
	b := newDevXBench(t)
	dropped, rest := b.counts(1), b.counts(1)
	b.rule(0, udpPortMask(), udpPort(1), FlowActions{Counters: dropped, Drop: true})
	b.rule(0, udpPortMask(), udpPort(3), FlowActions{Drop: true})
	b.rule(1, MatchParam{}, MatchParam{}, FlowActions{Counters: rest, DefaultMiss: true})
	other, mine := b.udpTo(2), b.udpTo(1)
	b.send(other, repeats/2)
	b.wantCounts(dropped, FlowCount{})
	b.wantCounts(rest, times(repeats/2, other))
	b.send(mine, repeats/2)
	b.send(b.udpTo(3), repeats)
	b.wantCounts(dropped, times(repeats/2, mine))
	b.wantCounts(rest, times(repeats/2, other))
}

// This is test_reuse_action_and_matcher, with two rules of one matcher.
func TestDevXSharedCounterAddsUpItsRules(t *testing.T) {
	b := newDevXBench(t)
	counter := b.counts(1)
	m := must(b.dx.CreateMatcher(MatcherAttr{Mask: udpPortMask()}))(t)
	b.closes(m)
	for _, port := range []uint16{1, 2} {
		b.closes(must(m.CreateFlow(udpPort(port), FlowActions{Counters: counter, DefaultMiss: true}))(t))
	}
	b.send(b.udpTo(1), repeats/2)
	b.send(b.udpTo(2), repeats/2)
	b.wantCounts(counter, times(repeats, b.udpTo(1)))
}

// mlx5_core keeps rules with equal matches as one entry. Each of their counters counts once, and a
// dropping rule cannot share the entry of a rule that does not drop (EEXIST). rdma-core's
// test_prevent_duplicate_rule asks for EEXIST of software steering, which is not used here.
func TestDevXRulesOfOneMatchCountTogether(t *testing.T) {
	b := newDevXBench(t)
	m := must(b.dx.CreateMatcher(MatcherAttr{Mask: udpPortMask()}))(t)
	b.closes(m)
	counter, other := b.counts(1), b.counts(1)
	first := must(m.CreateFlow(udpPort(1), FlowActions{Counters: counter, DefaultMiss: true}))(t)
	b.closes(must(m.CreateFlow(udpPort(1), FlowActions{Counters: counter, DefaultMiss: true}))(t))
	b.closes(must(m.CreateFlow(udpPort(1), FlowActions{Counters: other, DefaultMiss: true}))(t))
	if _, err := m.CreateFlow(udpPort(1), FlowActions{Counters: counter, Drop: true}); !errors.Is(err, syscall.EEXIST) {
		t.Errorf("a rule that drops beside one with the same match that does not: %v", err)
	}
	f := b.udpTo(1)
	b.send(f, repeats)
	b.check(first.Close())
	b.send(f, repeats)
	b.wantCounts(counter, times(2*repeats, f))
	b.wantCounts(other, times(2*repeats, f))
}

// These are test_create_empty_matcher and test_create_smac_matcher.
func TestDevXMatchersSelectAllPacketsOrOneSource(t *testing.T) {
	b := newDevXBench(t)
	all, one := b.counts(1), b.counts(1)
	mac := [6]byte{2, 0, 0, 0, 0, 9}
	smac := MatchParam{Outer: MatchHeaders{SMAC: [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}}
	b.rule(0, smac, MatchParam{Outer: MatchHeaders{SMAC: mac}}, FlowActions{Counters: one, DefaultMiss: true})
	b.rule(15, MatchParam{}, MatchParam{}, FlowActions{Counters: all, DefaultMiss: true})
	b.send(b.udpFrom(mac, 1), repeats)
	b.send(b.udpTo(1), 2*repeats)
	b.send(frame.Build(frame.Eth{Dst: [6]byte(b.wire.Near.MAC), Src: [6]byte{2}, Type: 0x88b5}, frame.Payload(50)), 1)
	b.wantCounts(one, times(repeats, b.udpTo(1)))
	b.wantCounts(all, FlowCount{Packets: 2*repeats + 1, Octets: 2*repeats*uint64(len(b.udpTo(1))) + 64})
}

// libmlx5, the kernel and firmware refuse in turn.
func TestDevXRefusalsArriveUnchanged(t *testing.T) {
	b := newDevXBench(t)
	m := must(b.dx.CreateMatcher(MatcherAttr{Mask: udpPortMask()}))(t)
	b.closes(m)
	counters := b.counts(4)
	for _, c := range []struct {
		name    string
		actions FlowActions
		want    error
	}{
		{"two destinations", FlowActions{DefaultMiss: true, Drop: true}, probe.ErrNotSupported},
		{"none", FlowActions{Counters: counters}, syscall.EINVAL},
		{"a counter behind the bulk", FlowActions{Counters: counters, Offset: uint32(counters.Len()), DefaultMiss: true}, syscall.EINVAL},
	} {
		if _, err := m.CreateFlow(udpPort(1), c.actions); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	late := must(b.dx.CreateMatcher(MatcherAttr{Priority: 16}))(t) // mlx5_ib looks for the table with the first rule
	b.closes(late)
	if _, err := late.CreateFlow(MatchParam{}, FlowActions{DefaultMiss: true}); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("priority 16: %v, mlx5_ib answers ENOMEM", err)
	}
	if _, err := m.CreateFlow(MatchParam{Outer: MatchHeaders{TCPDPort: 1}}, FlowActions{DefaultMiss: true}); err == nil {
		t.Error("a value outside the mask was taken")
	}
}

// The device or the library may not be mlx5's. The context must stay usable without DevX.
func TestDevXIsRefusedWithoutMLX5(t *testing.T) {
	wire := newWire(t)
	for _, c := range []struct{ name, device, mlx5, says string }{
		{"another driver", "efa_0", "", "not one of mlx5"},
		{"no library", device(), filepath.Join(t.TempDir(), "libmlx5.so.1"), "libmlx5"},
		{"a library without it", device(), stubLibrary(t, ""), "mlx5dv_is_supported"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newLibrary(t, wire, "")
			b.lib.opts.MLX5 = c.mlx5
			b.openDevice(c.device)
			var no *probe.UnsupportedError
			if _, err := b.ctx.DevX(); !errors.As(err, &no) || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("got %v, want an UnsupportedError about %q", err, c.says)
			}
			if _, err := b.ctx.QueryDevice(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The next command works again.
func TestDevXFirmwareErrorConcernsOneObject(t *testing.T) {
	b := newDevXBench(t, "FAIL", "QUERY_FLOW_COUNTER=EIO@2-3")
	counter := b.counts(1)
	b.rule(0, MatchParam{}, MatchParam{}, FlowActions{Counters: counter, DefaultMiss: true})
	f := b.udpTo(1)
	for i, fails := range []bool{false, true, true, false} {
		b.send(f, repeats)
		got := []FlowCount{{Packets: 1}}
		err := counter.Query(got)
		if fails {
			if !errors.Is(err, syscall.EIO) || got[0] != (FlowCount{Packets: 1}) {
				t.Errorf("query %d: %v, %+v", i, err, got[0])
			}
		} else if want := times(repeats*uint64(i+1), f); err != nil || got[0] != want {
			t.Errorf("query %d: %v, %+v, want %+v", i, err, got[0], want)
		}
	}
}
