package dataplane_test

import (
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

func TestEachBrokenRuleOfAQueuePairIsReported(t *testing.T) {
	peer := dataplane.QueuePairAddress{GID: netip.MustParseAddr("fe80::1"), QPN: 17, PSN: 1}
	sends := []dataplane.CompletionCounter{{Name: "sent", Operations: []dataplane.Operation{dataplane.Send}}}
	rc := func(edit func(*dataplane.QueuePair)) dataplane.QueuePair {
		q := dataplane.QueuePair{Name: "a", Device: "rxe0"}
		edit(&q)
		return q
	}
	none := func(*dataplane.QueuePair) {}
	for _, c := range []struct {
		name  string
		pairs []dataplane.QueuePair
		want  []string // "index field: part of the text", in their order
	}{
		{"the least", []dataplane.QueuePair{rc(none)}, nil},
		{"everything", []dataplane.QueuePair{rc(func(q *dataplane.QueuePair) {
			*q = dataplane.QueuePair{
				Name: "a", Device: "rdmap0s6", Port: 255, GIDIndex: 255, Type: dataplane.RC, Source: dataplane.SourceCompCntr, SendDepth: 1 << 15, Receives: -1, MessageSize: 1 << 24, Peer: &peer,
				Counters: []dataplane.CompletionCounter{{Name: "one", Operations: dataplane.Operations()[:3]}, {Name: "two", Operations: dataplane.Operations()[3:]}},
			}
		})}, nil},
		{"nothing", []dataplane.QueuePair{{}}, []string{"0 name: the name is empty", "0 device: it is empty"}},
		{"words", []dataplane.QueuePair{rc(func(q *dataplane.QueuePair) { q.Name, q.Device, q.Type, q.Source = "-", "a/b", "cr", "pollcq" })},
			[]string{`0 name: "-" starts with`, `0 device: "a/b" is no name`, `0 type: "cr" is not one of its words; did you mean "rc"?`, `0 source: "pollcq" is not one of its words; did you mean "poll_cq"?`}},
		{"numbers", []dataplane.QueuePair{rc(func(q *dataplane.QueuePair) {
			q.GIDIndex, q.SendDepth, q.Receives, q.MessageSize = 256, -1, -2, 1<<24+1
		})},
			[]string{"0 gid_index: 256 is out of range; use 0 to 255", "0 send_depth: -1", "0 receives: -2 is out of range; use -1 to 32768", "0 message_size: 16777217"}},
		{"two of one name", []dataplane.QueuePair{rc(none), rc(none)}, []string{`1 name: "a" is there already`}},
		{"counters", []dataplane.QueuePair{rc(func(q *dataplane.QueuePair) {
			q.Counters = []dataplane.CompletionCounter{
				{Name: "web", Operations: []dataplane.Operation{dataplane.Send, dataplane.Send}},
				{Name: "x"}, {Name: "x", Operations: []dataplane.Operation{"", "red", dataplane.Send}},
			}
		})}, []string{
			`0 counters[0].name: "web" is the name of a flow already`, "0 counters[0].operations[1]: send is counted twice", "0 counters[1].operations: no operation is named",
			`0 counters[2].name: "x" is the name of a counter already`, "0 counters[2].operations[0]: the operation is empty", `0 counters[2].operations[1]: "red" is not one of its words`,
			"0 counters[2].operations[2]: send is counted twice",
		}},
		{"one counter of two queue pairs", []dataplane.QueuePair{
			{Name: "a", Device: "rxe0", Counters: sends}, {Name: "b", Device: "rxe0", Counters: sends},
		}, []string{`1 counters[0].name: "sent" is the name of a counter already`}},
		{"operations that a type has not", []dataplane.QueuePair{rc(func(q *dataplane.QueuePair) {
			q.Type, q.Counters = dataplane.UD, []dataplane.CompletionCounter{{Name: "x", Operations: dataplane.Operations()}}
		})}, []string{
			"operations[2]: a queue pair of type ud has no rdma_read", "operations[3]", "operations[4]", "operations[5]",
		}},
		{"every operation of srd", []dataplane.QueuePair{rc(func(q *dataplane.QueuePair) {
			q.Type, q.Counters = dataplane.SRD, []dataplane.CompletionCounter{{Name: "x", Operations: dataplane.Operations()}}
		})}, nil},
		{"operations that a source cannot see", []dataplane.QueuePair{rc(func(q *dataplane.QueuePair) {
			q.Source, q.Counters = dataplane.SourceCQRing, []dataplane.CompletionCounter{{Name: "x", Operations: dataplane.Operations()}}
		})}, []string{"operations[3]: remote_rdma_read leaves no completion in a queue here, so that cq_ring cannot count it", "operations[5]"}},
		{"a peer", []dataplane.QueuePair{rc(func(q *dataplane.QueuePair) {
			q.Peer = &dataplane.QueuePairAddress{GID: netip.MustParseAddr("192.0.2.1"), LID: 0xc000, QPN: 1, PSN: 1 << 24}
		})}, []string{"0 peer.qpn: 1 is the number of no queue pair", "0 peer.psn", "0 peer.lid: 49152", "0 peer.gid: 192.0.2.1 is no GID"}},
		{"a peer that cannot be reached", []dataplane.QueuePair{rc(func(q *dataplane.QueuePair) { q.Peer = &dataplane.QueuePairAddress{QPN: 2} })}, []string{"0 peer.gid: there is neither"}},
		{"a peer with a zone", []dataplane.QueuePair{rc(func(q *dataplane.QueuePair) {
			q.Peer = &dataplane.QueuePairAddress{GID: netip.MustParseAddr("fe80::1%eth0"), QPN: 2}
		})}, []string{"0 peer.gid"}},
		{"a peer that is a group", []dataplane.QueuePair{rc(func(q *dataplane.QueuePair) {
			q.Type, q.Peer = dataplane.UD, &dataplane.QueuePairAddress{GID: netip.MustParseAddr("ff0e::1"), QPN: 2}
		})}, []string{"0 peer.gid: ff0e::1 is a multicast GID: a reliable connection has one other end, and datagrams to a group (ibv_attach_mcast) are not offered; copy the address"}},
		{"two ends", []dataplane.QueuePair{rc(func(q *dataplane.QueuePair) { q.Peer, q.Connect = &peer, "a" })}, []string{"0 connect: there is a peer already"}},
		{"frames have no other end", []dataplane.QueuePair{rc(func(q *dataplane.QueuePair) { q.Type, q.Connect = dataplane.RawPacket, "a" }), rc(func(q *dataplane.QueuePair) { q.Name, q.Type, q.Peer = "b", dataplane.RawPacket, &peer })},
			[]string{"0 connect: a queue pair of type raw_packet", "1 peer: a queue pair of type raw_packet"}},
		{"to itself", []dataplane.QueuePair{rc(func(q *dataplane.QueuePair) { q.Connect = "a" })}, nil},
		{"each names the other", []dataplane.QueuePair{{Name: "a", Device: "d", Connect: "b"}, {Name: "b", Device: "d", Connect: "a"}}, nil},
		{"one names the other", []dataplane.QueuePair{{Name: "a", Device: "d"}, {Name: "b", Device: "d", Connect: "a"}}, nil},
		{"nobody of that name", []dataplane.QueuePair{{Name: "front", Device: "d", Connect: "bakc"}, {Name: "back", Device: "d"}}, []string{`0 connect: there is no queue pair "bakc"; did you mean "back"?`}},
		{"of two types", []dataplane.QueuePair{{Name: "a", Device: "d", Connect: "b"}, {Name: "b", Device: "d", Type: dataplane.UD}}, []string{`0 connect: "b" is of type ud, and this one of type rc`}},
		{"of two sizes", []dataplane.QueuePair{{Name: "a", Device: "d", Connect: "b"}, {Name: "b", Device: "d", MessageSize: 1024}}, []string{`0 connect: "b" has message_size 1024, and this one 0`}},
		{"three of one connection", []dataplane.QueuePair{{Name: "a", Device: "d", Connect: "b"}, {Name: "b", Device: "d"}, {Name: "c", Device: "d", Connect: "b"}}, []string{`2 connect: "b" is connected to "a" already`}},
		{"a chain", []dataplane.QueuePair{{Name: "a", Device: "d", Connect: "b"}, {Name: "b", Device: "d", Connect: "c"}, {Name: "c", Device: "d"}}, []string{`0 connect: "b" has another end already`}},
		{"one that talks to itself", []dataplane.QueuePair{{Name: "a", Device: "d", Connect: "a"}, {Name: "b", Device: "d", Connect: "a"}}, []string{`1 connect: "a" has another end already`}},
		{"datagrams go from many to one", []dataplane.QueuePair{{Name: "a", Device: "d", Type: dataplane.UD, Connect: "c"}, {Name: "b", Device: "d", Type: dataplane.UD, Connect: "c"}, {Name: "c", Device: "d", Type: dataplane.UD}}, nil},
		{"so do reliable ones", []dataplane.QueuePair{{Name: "a", Device: "d", Type: dataplane.SRD, Connect: "c"}, {Name: "b", Device: "d", Type: dataplane.SRD, Connect: "c"}, {Name: "c", Device: "d", Type: dataplane.SRD}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := dataplane.Config{Flows: []flow.Flow{{Name: "web", Backend: "sim"}}, QueuePairs: c.pairs}
			broken := cfg.QueuePairErrors()
			if len(broken) != len(c.want) {
				t.Fatalf("%d errors, want %d: %v", len(broken), len(c.want), broken)
			}
			for i, want := range c.want {
				got := string(rune('0'+broken[i].Index)) + " " + broken[i].Field + ": " + broken[i].Cause + "; " + broken[i].Fix
				if !strings.Contains(got, want) {
					t.Errorf("error %q does not say %q", got, want)
				}
				if broken[i].QueuePair != c.pairs[broken[i].Index].Name || broken[i].Fix == "" {
					t.Errorf("error %+v names another queue pair, or no next step", broken[i])
				}
			}
			err := cfg.Validate()
			if (err == nil) != (len(c.want) == 0) || err != nil && !errors.Is(err, dataplane.ErrInvalid) {
				t.Errorf("Validate: %v", err)
			}
		})
	}
}

func TestWithDefaultsFillsOnlyEmptyFields(t *testing.T) {
	for _, c := range []struct{ have, want dataplane.QueuePair }{
		{dataplane.QueuePair{}, dataplane.QueuePair{Port: 1, Type: dataplane.RC, Source: dataplane.SourceAuto, SendDepth: 256, Receives: 256}},
		{
			dataplane.QueuePair{Name: "a", Port: 2, Type: dataplane.UD, Source: dataplane.SourcePollCQ, SendDepth: 1, Receives: -1, MessageSize: 9, Connect: "b"},
			dataplane.QueuePair{Name: "a", Port: 2, Type: dataplane.UD, Source: dataplane.SourcePollCQ, SendDepth: 1, Receives: -1, MessageSize: 9, Connect: "b"},
		},
	} {
		got := c.have.WithDefaults()
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v with defaults is %+v, want %+v", c.have, got, c.want)
		}
		if again := got.WithDefaults(); !reflect.DeepEqual(again, got) {
			t.Errorf("%+v has defaults, and with them is %+v", got, again)
		}
		if !slices.Contains(dataplane.QueuePairTypes(), got.Type) || !slices.Contains(dataplane.CompletionSources(), got.Source) {
			t.Errorf("%+v has a word that is not listed", got)
		}
	}
	q := dataplane.QueuePair{}.WithDefaults()
	if q.Type != dataplane.QueuePairTypes()[0] || q.Source != dataplane.CompletionSources()[0] {
		t.Errorf("the defaults %s and %s are not listed first", q.Type, q.Source)
	}
}

func TestQueuePairsNeedNoInterface(t *testing.T) {
	pairs := []dataplane.QueuePair{{Name: "a", Device: "rxe0"}}
	for _, c := range []struct {
		cfg dataplane.Config
		ok  bool
	}{
		{dataplane.Config{QueuePairs: pairs}, true},
		{dataplane.Config{QueuePairs: pairs, Backend: "sim"}, true},
		{dataplane.Config{QueuePairs: pairs, Flows: []flow.Flow{{Name: "f", Backend: "sim"}}}, true},
		{dataplane.Config{QueuePairs: pairs, Flows: []flow.Flow{{Name: "f"}}}, false},
		{dataplane.Config{QueuePairs: pairs, Backend: "sim", Flows: []flow.Flow{{Name: "f", Backend: "xdp"}}}, false},
	} {
		if err := c.cfg.Validate(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.cfg, err)
		}
	}
}

func TestAddressTextParsesToTheSameAddress(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := dataplane.QueuePairAddress{
			LID: rapid.Uint16Range(0, 0xbfff).Draw(t, "lid"), QPN: rapid.Uint32Range(2, 1<<24-2).Draw(t, "qpn"), PSN: rapid.Uint32Range(0, 1<<24-1).Draw(t, "psn"),
			QKey: rapid.Uint32().Draw(t, "qkey"), Addr: rapid.Uint64().Draw(t, "addr"), RKey: rapid.Uint32().Draw(t, "rkey"),
		}
		if a.LID == 0 || rapid.Bool().Draw(t, "has a gid") {
			raw := [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "gid"))
			raw[15] |= 1
			if a.GID = netip.AddrFrom16(raw); a.GID.IsMulticast() {
				t.Skip("of a group")
			}
		}
		got, err := dataplane.ParseQueuePairAddress(a.String())
		if err != nil || got != a {
			t.Fatalf("%s reads back as %+v, %v", a, got, err)
		}
	})
	for text, want := range map[string]string{
		"": "has no =", "qpn=17": "neither a GID nor a LID", "gid=fe80::1": "0 is the number of no queue pair", "gid=x,qpn=17": `"x" is no GID`,
		"lid=3,qpn=17,lid=3": "lid is given twice", "lid=3,qpn=1_7": `"1_7" is no number of 32 bits`, "lid=65536,qpn=17": "no number of 16 bits", "lid=3,qpn=17,mtu=5": `no field "mtu"`,
		"lid=3,qpn=17,": "has no =", "gid=fe80::1%eth0,qpn=17": "is no GID", "gid=192.0.2.1,qpn=17": "is no GID", "gid=::,qpn=17": "is no GID",
		"gid=ff02::1,qpn=17": "multicast", "gid=::ffff:224.0.0.1,qpn=17": "multicast",
	} {
		got, err := dataplane.ParseQueuePairAddress(text)
		if !errors.Is(err, dataplane.ErrInvalid) || !strings.Contains(err.Error(), want) || got != (dataplane.QueuePairAddress{}) {
			t.Errorf("%q: %+v, %v; want an error that says %q", text, got, err, want)
		}
	}
}
