package replay

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/cmd/internal/capture"
	"github.com/flowtally/flowtally/internal/lab/archive"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// whole selects packets of ARP for IPv4 and MACs. A load behind the end of the frame makes a filter select nothing.
const whole = "arp[2:4] == 0x08000604 and arp[27] >= 0 and "

// filters pairs filters of tcpdump with matches that select the same packets.
var filters = []struct{ tcpdump, match string }{
	{"", "any"},
	{"ip", "ipv4"},
	{"ip6", "ipv6"},
	{"arp", "eth type arp"},
	{"arp", "arp"},
	{whole + "arp[6:2] == 1", "arp op request"},
	{whole + "arp[6:2] == 2", "arp op reply"},
	{whole + "arp[14:4] & 0xffff0000 == 0xc0a80000", "arp sender 192.168.0.0/16"},
	{whole + "arp[24:4] & 0xffff0000 == 0xc0a80000", "arp target 192.168.0.0/16"},
	{"ether proto 0x88cc", "eth type 0x88cc"},
	{"ether multicast", "eth dst 01:00:00:00:00:00/01:00:00:00:00:00"},
	{"ether broadcast", "eth dst ff:ff:ff:ff:ff:ff"},
	{"vlan", "vlan"},
	{"vlan 1", "vlan id 1"},
	{"ip and tcp", "ipv4 tcp"},
	{"ip and udp", "ipv4 udp"},
	{"icmp", "ipv4 icmp"},
	{"ip6 and udp", "ipv6 udp"},
	{"ip proto 2", "ipv4 proto 2"},
	{"tcp dst port 80", "tcp dport 80"},
	{"tcp src port 80", "tcp sport 80"},
	{"tcp dst port 443", "tcp dport 443"},
	{"tcp dst port 44818", "tcp dport 44818"},
	{"udp dst port 53", "udp dport 53"},
	{"udp src port 53", "udp sport 53"},
	{"tcp dst port 502", "tcp dport 502"},
	{"tcp dst portrange 1-1023", "tcp dport 1-1023"},
	{"udp dst portrange 1024-65535", "udp dport 1024-65535"},
	{"ip src net 10.0.0.0/8", "ipv4 src 10.0.0.0/8"},
	{"ip dst net 192.168.0.0/16", "ipv4 dst 192.168.0.0/16"},
	{"ip src net 141.81.0.0/16", "ipv4 src 141.81.0.0/16"},
	{"ip dst net 224.0.0.0/4", "ipv4 dst 224.0.0.0/4"},
	{"ip[8] == 64", "ipv4 ttl 64"},
	{"ip[8] & 0xf0 == 0x70", "ipv4 ttl 0x70/0xf0"},
	{"ip[1] == 0", "ipv4 tos 0"},
	{"ip[1] & 0xfc == 0xb8", "ipv4 dscp ef"},
	{"ip[1] & 0xfc == 0xc0", "ipv4 dscp cs6"},
	{"ip[1] & 1 != 0", "ipv4 ecn 1/1"},
	{"ip proto 132", "ipv4 sctp"},
	{"ip proto 132 and ip[6:2] & 0x1fff == 0 and ip[20:2] == 2905", "ipv4 sctp sport m3ua"},
	{"ip proto 132 and ip[6:2] & 0x1fff == 0 and ip[24:4] == 0", "ipv4 sctp vtag 0"},
	{"ip proto 51", "ipv4 ah"},
	{"ip proto 51 and ip[6:2] & 0x1fff == 0 and ip[24:4] < 256", "ipv4 ah spi 0/0xffffff00"},
	{"ip[6:2] & 0x3fff != 0", "ipv4 frag yes"},
	{"ip[6:2] & 0x1fff != 0", "ipv4 frag later"},
	{"icmp[0] == 8", "ipv4 icmp type 8"},
	{"ip and tcp and dst net 141.81.0.0/16 and tcp src portrange 40000-50000", "ipv4 dst 141.81.0.0/16 tcp sport 40000-50000"},
}

// published returns the directory of the published module of gopacket.
func published(t *testing.T) string {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/gopacket/gopacket").Output()
	if err != nil {
		t.Fatalf("finding gopacket: %v", err)
	}
	return strings.TrimSpace(string(dir))
}

// released returns the sources of tcpdump, as Debian distributes them. Their tests have several hundred captures.
func released(t *testing.T) string {
	need.Tool(t, "apt-get", "tar")
	cache, err := archive.DefaultDir()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := archive.Cache{Dir: cache}.Source(t.Context(), "bookworm", "tcpdump")
	if err != nil {
		need.Missing(t, "archive", err.Error())
	}
	return dir
}

// captures are the captures below a directory.
func captures(t *testing.T, root string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if ext := filepath.Ext(path); ext == ".pcap" || ext == ".pcapng" {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

var counted = regexp.MustCompile(`(?m)^(\d+) packets?$`)

// tcpdump returns the number of packets selected by a filter. It returns false if tcpdump rejects the capture, or the
// filter for this link type.
func tcpdump(t *testing.T, path, filter string) (uint64, bool) {
	t.Helper()
	out, err := exec.Command("tcpdump", "-Z", "root", "-n", "--count", "-r", path, filter).CombinedOutput()
	m := counted.FindSubmatch(out)
	if err != nil || m == nil {
		return 0, false
	}
	n, err := strconv.ParseUint(string(m[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n, true
}

// behindTags makes a filter of tcpdump select packets with up to two VLAN tags, too, as our matches do. In tcpdump the
// word vlan shifts all offsets in the filter after it.
func behindTags(filter string) string {
	if filter == "" {
		return filter
	}
	return "(" + filter + ") or (vlan and ((" + filter + ") or (vlan and (" + filter + "))))"
}

// The test compares the counts of captures from two sources, filter by filter.
func TestCountsAsTcpdump(t *testing.T) {
	for _, o := range []struct {
		name                  string
		dir                   func(*testing.T) string
		least                 uint64 // packets of a capture that is compared
		captures, pairs, hits int    // fewer are a mistake of this test
	}{
		{"module gopacket", published, 10, 7, 200, 15},
		{"sources of tcpdump", released, 75, 18, 500, 15},
	} {
		t.Run(o.name, func(t *testing.T) {
			need.BPF(t)
			need.Tool(t, "tcpdump")
			captures, pairs, hits := compareWithTcpdump(t, o.dir(t), o.least)
			if captures < o.captures || pairs < o.pairs || hits < o.hits {
				t.Error("the test looks at little")
			}
		})
	}
}

func compareWithTcpdump(t *testing.T, dir string, least uint64) (captured, pairs, hit int) {
	type read struct {
		path, name string
		data       []byte
		packets    uint64
		tagged     bool // some packets have a VLAN tag
	}
	var files []read
	sum := uint64(0)
	for _, path := range captures(t, dir) {
		n, ok := tcpdump(t, path, "")
		if !ok || n < least {
			continue // tcpdump reads no capture with several link types
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := capture.Open(bytes.NewReader(data)); errors.Is(err, capture.ErrLink) {
			continue
		}
		tagged, _ := tcpdump(t, path, "vlan")
		files = append(files, read{path, strings.TrimPrefix(path, dir), data, n, tagged > 0})
		sum += n
	}
	for _, f := range filters {
		some := 0
		d, err := NewDecider(flows(t, f.match), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, in := range files {
			filter := f.tcpdump
			if in.tagged && !strings.HasPrefix(filter, "vlan") {
				filter = behindTags(filter)
			}
			want, ok := tcpdump(t, in.path, filter)
			if !ok {
				continue // the filter is for another link type
			}
			pairs++
			rep, err := d.Replay(context.Background(), bytes.NewReader(in.data), Options{})
			if err != nil || rep.NoBPF != nil {
				t.Fatalf("%s: %v, %v", in.name, err, rep)
			}
			if rep.Err != nil || rep.Records.Packets != in.packets || rep.Counts[0].Packets != want {
				t.Errorf("%s: %q: %d packets of %d, %v; tcpdump %q: %d of %d", in.name, f.match, rep.Counts[0].Packets, rep.Records.Packets, rep.Err, filter, want, in.packets)
			}
			if want > 0 && want < in.packets {
				some = 1
			}
		}
		hit += some
		d.Close()
	}
	t.Logf("%d captures with %d packets, %d filters, %d comparisons; %d filters select some packets of a capture and not all", len(files), sum, len(filters), pairs, hit)
	return len(files), pairs, hit
}
