package plugin

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

var matchTexts = []string{
	"any", "ipv4 src 10.0.0.0/8 dst 192.0.2.10 tcp dport 443", "vlan id 100 vlan id 7 ipv6 udp", "udp dport 1000-2000",
	"icmp type 8", "ipv4 dst 192.0.2.1 vxlan vni 5 inner ipv4 dst 10.0.0.1 tcp dport 80", "gre key 7 inner ipv6", "ipv6 ipip inner ipv4 dst 10.0.0.1", "geneve vni 5 inner eth", "gtpu teid 0x00001000 inner any", "mplsudp label 16 bos 1",
	"tcp dport {22, 80, 8000-8080} flags {syn, syn|ack}", "ipv4 src != {10.0.0.0/8, 192.168.0.0/16}", "gre inner ipv6 src 2001:db8::5-2001:db8::9",
	"ipv4 src @blocklist dst != @allow.1",
	"eth dst 02:00:00:00:00:01 type 0x88cc", "ipv4 proto 47 tos 0x10/0xfc ttl 64 frag later",
}

func drawFlow(t *rapid.T) flow.Flow {
	m, err := flow.ParseMatch(rapid.SampledFrom(matchTexts).Draw(t, "match"))
	if err != nil {
		t.Fatal(err)
	}
	f := flow.Flow{
		Name:  rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._:/-]{0,20}`).Draw(t, "name"),
		Match: m, Priority: rapid.Uint16().Draw(t, "priority"),
		Direction: flow.Direction(rapid.IntRange(0, 1).Draw(t, "direction")),
		Action:    flow.Action(rapid.IntRange(0, 1).Draw(t, "action")),
		Interface: rapid.SampledFrom([]string{"", "eth0", "veth-a"}).Draw(t, "interface"),
		Latency:   rapid.Bool().Draw(t, "latency"),
		Backend:   rapid.SampledFrom(append(flow.Backends(), "")).Draw(t, "backend"),
	}
	if rapid.Bool().Draw(t, "labelled") {
		f.Labels = map[string]string{"site": rapid.StringMatching(`[a-zäöü€ "\\]{0,20}`).Draw(t, "label")}
	}
	return f
}

func overWire[M proto.Message](t interface{ Fatal(...any) }, in, out M) M {
	b, err := proto.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(b, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestConfigCrossesTheWireUnchanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := dataplane.Config{
			Instance: rapid.StringN(0, 5, 20).Draw(t, "instance"),
			Backend:  rapid.SampledFrom(append(flow.Backends(), "")).Draw(t, "backend"),
			Start:    dataplane.StartMode(rapid.SampledFrom([]string{"", "strict", "degraded", "?"}).Draw(t, "start")),
			Mirror: dataplane.MirrorConfig{
				Path: rapid.StringN(0, 5, 20).Draw(t, "path"), Counters: rapid.Int().Draw(t, "counters"),
				LatencyCounters: rapid.Int().Draw(t, "latency"), History: rapid.Int().Draw(t, "history"),
				HistoryPeriod: time.Duration(rapid.Int64().Draw(t, "period")), Mode: fs.FileMode(rapid.Uint32().Draw(t, "mode")),
			},
			Poll: dataplane.PollConfig{
				Period: time.Duration(rapid.Int64().Draw(t, "poll")), IdlePeriod: time.Duration(rapid.Int64().Draw(t, "idle")), Busy: rapid.Bool().Draw(t, "busy"), CPU: rapid.Int().Draw(t, "cpu"),
			},
			XDP: dataplane.XDPConfig{PinDir: "/sys/fs/bpf/x", MaxFlows: rapid.Int().Draw(t, "max"), WorstCost: rapid.Int().Draw(t, "worst"), KeepPins: rapid.Bool().Draw(t, "keep"), TCX: rapid.StringN(0, 5, 20).Draw(t, "tcx"), Beside: rapid.SampledFrom([][]dataplane.Beside{nil, {"tcx"}, {"refuse", "tcx"}}).Draw(t, "beside")},
			RDMA: dataplane.RDMAConfig{
				Library: rapid.StringN(0, 5, 20).Draw(t, "library"), MLX5: rapid.StringN(0, 5, 20).Draw(t, "mlx5"), EFA: rapid.StringN(0, 5, 20).Draw(t, "efa"),
				CommandsPerSecond: rapid.Int().Draw(t, "commands"), ByteBasis: dataplane.ByteBasis(rapid.StringN(0, 5, 20).Draw(t, "basis")), Steal: rapid.Bool().Draw(t, "steal"), Audit: rapid.Bool().Draw(t, "audit"),
			},
		}
		for range rapid.IntRange(0, 3).Draw(t, "interfaces") {
			want.Interfaces = append(want.Interfaces, dataplane.Interface{
				Name: rapid.StringN(0, 5, 20).Draw(t, "if"), Mode: "native", Optional: rapid.Bool().Draw(t, "optional"),
				Direction: rapid.SampledFrom(append(dataplane.InterfaceDirections(), "", "?")).Draw(t, "only"),
			})
		}
		for range rapid.IntRange(0, 3).Draw(t, "sets") {
			want.Sets = append(want.Sets, drawSet(t))
		}
		for range rapid.IntRange(0, 3).Draw(t, "flows") {
			want.Flows = append(want.Flows, drawFlow(t))
		}
		want.Mirror.LiveMode = fs.FileMode(rapid.Uint32().Draw(t, "live mode"))
		want.Mirror.LiveGroup = rapid.StringN(0, 5, 20).Draw(t, "live group")
		want.Mirror.WordsMode = fs.FileMode(rapid.Uint32().Draw(t, "words mode"))
		want.Mirror.WordsGroup = rapid.StringN(0, 5, 20).Draw(t, "words group")
		want.Words = rapid.SampledFrom([][]string{nil, {"a"}, {"b", ""}}).Draw(t, "words")
		want.Mirror.WaitGroup = rapid.StringN(0, 5, 20).Draw(t, "wait group")
		for range rapid.IntRange(0, 3).Draw(t, "queue pairs") {
			want.QueuePairs = append(want.QueuePairs, drawQueuePair(t))
		}
		msg, err := configToProto(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := configFromProto(overWire(t, msg, &pluginv1.Config{}))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, addresses); diff != "" {
			t.Fatalf("config changed (-sent +received):\n%s", diff)
		}
	})
}

// drawSet draws a set, whose elements are in the order of the wire: those of IPv4 first.
func drawSet(t *rapid.T) dataplane.Set {
	s := dataplane.Set{Name: rapid.StringMatching(`[a-z0-9][a-z0-9._-]{0,8}`).Draw(t, "set")}
	for _, bytes := range []int{4, 16} {
		for range rapid.IntRange(0, 3).Draw(t, "elements") {
			a, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), bytes, bytes).Draw(t, "address"))
			p, _ := a.Prefix(rapid.IntRange(0, 8*bytes).Draw(t, "bits"))
			s.Elements = append(s.Elements, p)
		}
	}
	return s
}

// A message of another program may have anything in the place of elements.
func TestWrongSetsOfTheWireAreRefused(t *testing.T) {
	for name, s := range map[string]*pluginv1.Set{
		"no set":             nil,
		"half an element":    {Name: "a", Ipv4: []byte{10, 0, 0, 0, 8, 10}},
		"a long prefix":      {Name: "a", Ipv4: []byte{10, 0, 0, 0, 33}},
		"a long prefix of 6": {Name: "a", Ipv6: append(make([]byte, 16), 129)},
		"bits behind one":    {Name: "a", Ipv4: []byte{10, 0, 0, 1, 8}},
		"no name":            {},
		"a long name":        {Name: strings.Repeat("n", 1<<20)},
	} {
		_, err := configFromProto(&pluginv1.Config{Sets: []*pluginv1.Set{s}})
		if !errors.Is(err, dataplane.ErrInvalid) || len(err.Error()) > 8<<10 {
			t.Errorf("%s: %.200v", name, err)
		}
	}
	for name, s := range map[string]dataplane.Set{
		"no name":              {},
		"bits behind a prefix": {Name: "a", Elements: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/8")}},
		"no prefix":            {Name: "a", Elements: make([]netip.Prefix, 1)},
	} {
		if _, err := configToProto(dataplane.Config{Sets: []dataplane.Set{s}}); !errors.Is(err, dataplane.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnswersCrossTheWireUnchanged(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 30, 0, 123456789, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		placed := []dataplane.Placement{{
			Flow: drawFlow(t), Source: dataplane.Source{Backend: "xdp", Devices: []dataplane.Device{{Backend: "xdp", Name: "eth0", Mode: "native"}, {Backend: "rdma", Name: "mlx5_0", Mode: "devx"}}},
			Counter:  dataplane.Handle{Index: rapid.Uint32().Draw(t, "index"), Generation: rapid.Uint32().Draw(t, "generation")},
			Rejected: []dataplane.Rejection{{Backend: "rdma", Reason: "no device"}},
		}}
		gotPlaced, err := placementsFromProto(overWire(t, &pluginv1.PlacementsResponse{Placements: placementsToProto(placed)}, &pluginv1.PlacementsResponse{}).Placements)
		if diff := cmp.Diff(placed, gotPlaced); err != nil || diff != "" {
			t.Fatalf("placements changed: %v\n%s", err, diff)
		}
		conditions := []dataplane.Condition{{
			Code: "c", Severity: dataplane.Severity(rapid.IntRange(0, 2).Draw(t, "severity")), Object: "o", Text: "t", Fix: "f", Since: at,
		}, {}}
		gotConditions := conditionsFromProto(overWire(t, &pluginv1.ConditionsResponse{Conditions: conditionsToProto(conditions)}, &pluginv1.ConditionsResponse{}).Conditions)
		if diff := cmp.Diff(conditions, gotConditions); diff != "" {
			t.Fatalf("conditions changed:\n%s", diff)
		}
		event := dataplane.Event{Time: at, Kind: "whatever-comes", Code: "of-a-condition", Object: "o", Text: "t", Lost: rapid.Uint64().Draw(t, "lost"),
			Uncounted: dataplane.Uncounted{Packets: rapid.Uint64().Draw(t, "packets"), Bytes: rapid.Uint64().Draw(t, "bytes"), Unknown: rapid.Bool().Draw(t, "unknown")}}
		if diff := cmp.Diff(event, eventFromProto(overWire(t, eventToProto(event), &pluginv1.Event{}))); diff != "" {
			t.Fatalf("event changed:\n%s", diff)
		}
		info := dataplane.Info{Instance: "i", Mirror: "/m", Version: "v", PID: rapid.Int().Draw(t, "pid"), Started: at}
		if diff := cmp.Diff(info, infoFromProto(overWire(t, infoToProto(info), &pluginv1.Info{}))); diff != "" {
			t.Fatalf("info changed:\n%s", diff)
		}
	})
}

// Text of the plugin's that is no UTF-8 is mended: protobuf would refuse the whole message.
func TestTextsThatAreNotUTF8AreMendedBeforeTheWire(t *testing.T) {
	bad := "a\xffb"
	overWire(t, conditionsMsg(dataplane.Condition{Code: dataplane.ConditionCode(bad), Object: bad, Text: bad, Fix: bad}), &pluginv1.ConditionsResponse{})
	overWire(t, eventToProto(dataplane.Event{Kind: dataplane.EventKind(bad), Object: bad, Text: bad}), &pluginv1.Event{})
	overWire(t, infoToProto(dataplane.Info{Instance: bad, Mirror: bad, Version: bad}), &pluginv1.Info{})
	overWire(t, &pluginv1.PlacementsResponse{Placements: placementsToProto([]dataplane.Placement{{
		Flow: flow.Flow{Name: "a"}, Source: dataplane.Source{Backend: flow.Backend(bad), Devices: []dataplane.Device{{Backend: flow.Backend(bad), Name: bad, Mode: dataplane.Mode(bad)}}},
		Rejected: []dataplane.Rejection{{Backend: bad, Reason: bad}},
	}})}, &pluginv1.PlacementsResponse{})
}

func conditionsMsg(c ...dataplane.Condition) *pluginv1.ConditionsResponse {
	return &pluginv1.ConditionsResponse{Conditions: conditionsToProto(c)}
}

// The sending side refuses values that could not be sent or would arrive as others.
func TestValuesThatWouldArriveChangedAreErrors(t *testing.T) {
	for name, f := range map[string]flow.Flow{
		"label":     {Name: "a", Labels: map[string]string{"k": "\xff"}},
		"interface": {Name: "a", Interface: "\xff"},
		"match":     {Name: "a", Match: flow.Match{TCP: &flow.TCP{Ports: flow.Ports{Dst: flow.Port{Value: 9, Last: 3}}}}},
		"name":      {Name: ""},
	} {
		if _, err := flowsToProto([]flow.Flow{{Name: "good"}, f}); !errors.Is(err, dataplane.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, c := range []dataplane.Config{
		{Instance: "\xff"}, {Mirror: dataplane.MirrorConfig{Path: "\xff"}}, {Interfaces: []dataplane.Interface{{Name: "\xff"}}},
		{XDP: dataplane.XDPConfig{PinDir: "\xff"}}, {Backend: "\xff"},
		{RDMA: dataplane.RDMAConfig{Library: "\xff"}}, {RDMA: dataplane.RDMAConfig{MLX5: "\xff"}},
	} {
		if _, err := configToProto(c); !errors.Is(err, dataplane.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestHostileMessagesAreErrorsAndDoNotPanic(t *testing.T) {
	good := &pluginv1.Flow{Name: "a", Match: "any", Direction: 1, Action: 1}
	with := func(change func(*pluginv1.Flow)) *pluginv1.Flow {
		f := proto.CloneOf(good)
		change(f)
		return f
	}
	if _, err := flowFromProto(good); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]*pluginv1.Flow{
		"nil":            nil,
		"empty":          {},
		"no direction":   with(func(f *pluginv1.Flow) { f.Direction = 0 }),
		"direction":      with(func(f *pluginv1.Flow) { f.Direction = -5 }),
		"action":         with(func(f *pluginv1.Flow) { f.Action = 77 }),
		"priority":       with(func(f *pluginv1.Flow) { f.Priority = 1 << 16 }),
		"match":          with(func(f *pluginv1.Flow) { f.Match = "ipv4 ipv4 ipv4" }),
		"no match":       with(func(f *pluginv1.Flow) { f.Match = "bogus" }),
		"huge match":     with(func(f *pluginv1.Flow) { f.Match = strings.Repeat("ipv4 ", 1<<20) }),
		"deep match":     with(func(f *pluginv1.Flow) { f.Match = strings.Repeat("gre inner ", 1000) }),
		"huge name":      with(func(f *pluginv1.Flow) { f.Name = strings.Repeat("n", 1<<24) }),
		"name":           with(func(f *pluginv1.Flow) { f.Name = "../../etc/passwd\x00" }),
		"backend":        with(func(f *pluginv1.Flow) { f.Backend = "dpdk" }),
		"huge backend":   with(func(f *pluginv1.Flow) { f.Backend = strings.Repeat("n", 1<<20) }),
		"huge interface": with(func(f *pluginv1.Flow) { f.Interface = strings.Repeat("n", 1<<20) }),
	} {
		_, err := flowsFromProto([]*pluginv1.Flow{good, f})
		if !errors.Is(err, dataplane.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && len(err.Error()) > 8<<10 {
			t.Errorf("%s: an error of %d bytes: %.200s", name, len(err.Error()), err)
		}
		if _, err := configFromProto(&pluginv1.Config{Flows: []*pluginv1.Flow{f}}); !errors.Is(err, dataplane.ErrInvalid) {
			t.Errorf("%s in a configuration: %v", name, err)
		}
		if _, err := placementsFromProto([]*pluginv1.Placement{{Flow: f}, nil}); err == nil {
			t.Errorf("%s in a placement was read", name)
		}
	}
	for name, c := range map[string]*pluginv1.Config{"nil": nil, "interface": {Interfaces: []*pluginv1.Interface{nil}}} {
		if _, err := configFromProto(c); !errors.Is(err, dataplane.ErrInvalid) {
			t.Errorf("configuration with %s: %v", name, err)
		}
	}
	if _, err := configFromProto(&pluginv1.Config{}); err != nil {
		t.Errorf("an empty configuration: %v", err)
	}
	// The reading side must survive every message.
	infoFromProto(nil)
	eventFromProto(nil)
	conditionsFromProto([]*pluginv1.Condition{nil, {Severity: 99, Since: &timestamppb.Timestamp{Seconds: math.MinInt64, Nanos: -1}}})
	if got := conditionsFromProto([]*pluginv1.Condition{{Severity: 99}}); got[0].Severity != dataplane.High {
		t.Errorf("an unknown severity is read as %v", got[0].Severity)
	}
}

// Whatever bytes arrive as a flow: an error, or a flow that is valid and goes
// back and forth unchanged.
func FuzzFlow(f *testing.F) {
	for _, text := range matchTexts {
		b, _ := proto.Marshal(&pluginv1.Flow{Name: "a", Match: text, Direction: 1, Action: 2, Labels: map[string]string{"a": "b"}})
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var p pluginv1.Flow
		if proto.Unmarshal(b, &p) != nil {
			return
		}
		got, err := flowFromProto(&p)
		if err != nil {
			return
		}
		if err := got.Validate(); err != nil {
			t.Fatalf("an invalid flow came through: %v", err)
		}
		msg, err := flowsToProto([]flow.Flow{got})
		if err != nil {
			t.Fatalf("a flow that came in cannot go out: %v", err)
		}
		again, err := flowFromProto(msg[0])
		if diff := cmp.Diff(got, again); err != nil || diff != "" {
			t.Fatalf("flow changed: %v\n%s", err, diff)
		}
	})
}

func FuzzConfig(f *testing.F) {
	msg, _ := configToProto(dataplane.Config{Instance: "a", Interfaces: []dataplane.Interface{{Name: "eth0"}}, Flows: []flow.Flow{{Name: "f"}}})
	b, _ := proto.Marshal(msg)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var p pluginv1.Config
		if proto.Unmarshal(b, &p) != nil {
			return
		}
		c, err := configFromProto(&p)
		if err != nil {
			if !errors.Is(err, dataplane.ErrInvalid) {
				t.Fatalf("error without a sentinel: %v", err)
			}
			return
		}
		if _, err := configToProto(c); err != nil {
			t.Fatalf("a configuration that came in cannot go out: %v", err)
		}
	})
}

// No counter value crosses the boundary: the only 64-bit numbers are settings, a process, the number of lost events,
// the cost of a change of source, the estimated cost of a packet, and the results of one call's posted operations; the only
// bytes are the elements of sets.
func TestProtocolCarriesNoCounts(t *testing.T) {
	allowed := map[string]bool{
		"counters": true, "latency_counters": true, "history": true, "history_period_ns": true, "period_ns": true, "idle_period_ns": true,
		"cpu": true, "max_flows": true, "worst_cost": true, "pid": true, "lost": true,
		"gid_index": true, "send_depth": true, "receives": true, "message_size": true, "addr": true, "outstanding": true,
		"nodes": true, "rules": true, "ns": true, "count": true, "ended_completed": true, "ended_errors": true, "commands_per_second": true, "uncounted_packets": true, "uncounted_bytes": true,
		"ipv4": true, "ipv6": true,
	}
	messages := pluginv1.File_plugin_proto_v1_flowtally_proto.Messages()
	for i := range messages.Len() {
		fields := messages.Get(i).Fields()
		for j := range fields.Len() {
			f := fields.Get(j)
			switch f.Kind() {
			case protoreflect.Uint64Kind, protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Fixed64Kind,
				protoreflect.Sfixed64Kind, protoreflect.DoubleKind, protoreflect.FloatKind, protoreflect.BytesKind:
				if !allowed[string(f.Name())] {
					t.Errorf("%s could carry a count", f.FullName())
				}
			}
		}
	}
}

func TestSetsBeyondTheBoundsAreRefusedAheadOfTheirElements(t *testing.T) {
	many := make([]*pluginv1.Set, dataplane.MostSets+1)
	for i := range many {
		many[i] = &pluginv1.Set{Name: fmt.Sprint("s", i)}
	}
	great := []*pluginv1.Set{{Name: "a"}, {Name: "b", Ipv4: make([]byte, elementBytes4*(dataplane.MostElementsOfAll+1))}}
	for _, sets := range [][]*pluginv1.Set{many, great} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := setsFromProto(sets)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, dataplane.ErrInvalid) {
			t.Errorf("%d sets: %v, want ErrInvalid", len(sets), err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
			t.Errorf("%d sets: refused after %d bytes were allocated", len(sets), took)
		}
	}
}
