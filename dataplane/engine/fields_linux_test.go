package engine

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/frame"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// nftables reads the same frames behind the program, by rules in its own words.
func TestFieldsCountWhatNftablesCounts(t *testing.T) {
	need.Tool(t, "nft")
	near, far := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	eth := frame.Eth{Dst: [6]byte{2, 0, 0, 0, 0, 1}, Src: [6]byte{2, 0, 0, 0, 0, 2}}
	ip := frame.IPv4{Src: far, Dst: near}
	marked := func(tos uint8) frame.IPv4 { return frame.IPv4{Src: far, Dst: near, TOS: tos} }
	arp := func(op uint16, sender, target netip.Addr) []byte {
		return frame.Build(eth, frame.ARP{Op: op, Sender: sender, Target: target}, frame.Payload(18))
	}
	sctp := func(dport uint16, tag uint32) []byte {
		return frame.Sized(60, eth, ip, frame.SCTP{Src: 40000, Dst: dport, Tag: tag})
	}
	ah := func(spi uint32) []byte { return frame.Sized(80, eth, ip, frame.AuthHeader{SPI: spi, Seq: 1}) }
	udp := func(ip frame.IPv4, dport uint16) []byte {
		return frame.Sized(60, eth, ip, frame.UDP{Src: 40000, Dst: dport})
	}

	rows := []struct {
		name, match, nft string
		frames           [][]byte
	}{
		{"request", "arp op request target 192.0.2.1", "arp operation request arp daddr ip 192.0.2.1", [][]byte{arp(1, far, near)}},
		{"sender", "arp op reply sender 192.0.2.0/24", "arp operation reply arp saddr ip 192.0.2.0/24", [][]byte{arp(2, far, near), arp(2, near, far)}},
		{"port", "sctp dport 3868", "sctp dport 3868", [][]byte{sctp(3868, 1), sctp(3868, 2)}},
		{"tag", "sctp vtag 7 dport 1-9", "sctp vtag 7 sctp dport 1-9", [][]byte{sctp(9, 7)}},
		{"spi", "ipv4 ah spi 256", "ip protocol ah ah spi 256", [][]byte{ah(256)}},
		{"dscp", "ipv4 dscp ef udp", "ip dscp ef ip protocol udp", [][]byte{udp(marked(46<<2), 9), udp(marked(46<<2|3), 9)}},
		{"ecn", "ipv4 ecn ce tcp", "ip ecn ce ip protocol tcp", [][]byte{frame.Sized(60, eth, marked(3), frame.TCP{Src: 1, Dst: 2})}},
		{"name", "ipv4 dscp be udp dport domain", "ip dscp cs0 udp dport domain", [][]byte{udp(ip, 53)}},
		{"misses", "eth type 0x88b5", "ether type 0x88b5", [][]byte{
			arp(1, far, far), arp(3, far, near), sctp(3869, 7), sctp(9, 8), ah(257), udp(marked(45<<2), 9), udp(marked(1), 54),
		}},
	}
	for _, mode := range []string{"native", "tcx"} {
		t.Run(mode, func(t *testing.T) {
			var flows []flow.Flow
			var streams []lab.Stream
			for _, r := range rows {
				flows = append(flows, flow.Flow{Name: r.name, Match: match(t, r.match)})
				streams = append(streams, lab.Stream{Frames: r.frames})
			}
			b := newBench(t, mode, flows...)
			var rules strings.Builder
			fmt.Fprintf(&rules, "table netdev judge {\n")
			for _, r := range rows {
				fmt.Fprintf(&rules, "counter f_%s {}\n", r.name)
			}
			fmt.Fprintf(&rules, "chain in { type filter hook ingress device %q priority 0;\n", b.wire.Near.Name)
			for _, r := range rows {
				fmt.Fprintf(&rules, "%s counter name f_%s\n", r.nft, r.name)
			}
			rules.WriteString("}\n}\n")
			nft := func(stdin string, args ...string) (out []byte) {
				t.Helper()
				err := b.wire.Near.NS.Do(func() (err error) {
					c := exec.Command("nft", args...)
					c.Stdin = strings.NewReader(stdin)
					out, err = c.CombinedOutput()
					return err
				})
				if err != nil {
					t.Fatalf("nft %v: %v\n%s%s", args, err, out, stdin)
				}
				return out
			}
			nft(rules.String(), "-f", "-")

			b.start(t)
			sent := b.send(t, 1000, streams...)
			var list struct {
				Nftables []struct {
					Counter struct {
						Name           string
						Packets, Bytes uint64
					}
				}
			}
			if err := json.Unmarshal(nft("", "-j", "list", "counters"), &list); err != nil {
				t.Fatal(err)
			}
			judged := map[string]uint64{}
			for _, o := range list.Nftables {
				judged[strings.TrimPrefix(o.Counter.Name, "f_")] = o.Counter.Packets
			}
			reader := reader(t, b.cfg)
			for i, r := range rows {
				want := backend.Pair(sent[i])
				if r.name == "misses" {
					want = backend.Pair{}
				}
				await(t, reader, r.name, want)
				if judged[r.name] != want.Packets {
					t.Errorf("%s: nftables counts %d packets by %q, and flowtally %d", r.name, judged[r.name], r.nft, want.Packets)
				}
			}
		})
	}
}

// The kernel asks for an address, and answers.
func TestARPOfTheKernelIsCounted(t *testing.T) {
	b := newBench(t, "tcx",
		flow.Flow{Name: "asked", Match: match(t, "arp op request sender 192.0.2.2 target 192.0.2.1")},
		flow.Flow{Name: "others", Match: match(t, "arp"), Priority: 1},
		flow.Flow{Name: "answered", Match: match(t, "arp op reply sender 192.0.2.1 target 192.0.2.2"), Direction: flow.Egress},
	)
	b.start(t)
	for end, addr := range map[*lab.End]string{b.wire.Near: "192.0.2.1/24", b.wire.Far: "192.0.2.2/24"} {
		if err := end.AddAddr(netip.MustParsePrefix(addr)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.wire.Far.NS.Do(func() error {
		c, err := net.Dial("udp", "192.0.2.1:9")
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("x"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	r := reader(t, b.cfg)
	await(t, r, "asked", backend.Pair{Packets: 1, Bytes: 42})
	await(t, r, "answered", backend.Pair{Packets: 1, Bytes: 42})
	await(t, r, "others", backend.Pair{})
}
