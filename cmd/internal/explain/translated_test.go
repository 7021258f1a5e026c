package explain

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/configs"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/internal/oracle"
	"github.com/flowtally/flowtally/internal/oracle/gen"
)

// translated is the folder of the rules of other tools, as flows.
const translated = "../../../configs/translated"

// packetsOf draws packets that a flow alone counts.
func packetsOf(rng *rand.Rand, f flow.Flow, n int) (packets []oracle.Packet) {
	alone := []flow.Flow{f}
	for tries := 0; len(packets) < n && tries < 1000*n; tries++ {
		p := oracle.Packet{Frame: gen.Packet(rng, alone), Direction: f.Direction, Interface: f.Interface}
		if oracle.Matches(f.Match, p) {
			packets = append(packets, p)
		}
	}
	return packets
}

// In the files of configs/translated no flow is hidden by the flows ahead of it: the linear matcher, and on a host with BPF
// the classifier, count a packet for each of them.
func TestEachTranslatedFlowCountsAPacket(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(translated, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			cfg, err := configs.Load(file)
			if err != nil {
				t.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(seed.Uint64(t), 0))
			e, err := New(cfg.Flows, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()

			for _, f := range cfg.Flows {
				counted := false
				for _, p := range packetsOf(rng, f, 30) {
					x, err := e.Explain(p) // fails if the two differ
					if err != nil {
						t.Fatal(err)
					}
					if x.Winner >= 0 && x.Reasons[x.Winner].Flow.Name == f.Name {
						counted = true
					}
				}
				if !counted {
					t.Errorf("no packet counts for %s: %s", f.Name, f.Match)
				}
			}
		})
	}
}

// A group is the lines of another tool and the flows below them, which say the same. An addition of the file has no lines.
type group struct {
	lines []string
	flows []flow.Flow
}

// groups reads a file of configs/translated. Its comments have the lines of the other tool, ahead of their flows.
func groups(t *testing.T, name string) (all []group) {
	t.Helper()
	file := filepath.Join(translated, name)
	cfg, err := configs.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	_, body, _ := strings.Cut(string(text), "\nflows:\n")
	n := 0
	var lines []string
	open := false // the line above is a flow
	for line := range strings.Lines(body) {
		line = strings.TrimSpace(line)
		theirs, ok := strings.CutPrefix(line, "#> ")
		switch {
		case ok:
			lines = append(lines, theirs)
			open = false
		case !strings.HasPrefix(line, "- {"):
			open = false
		case open:
			all[len(all)-1].flows = append(all[len(all)-1].flows, cfg.Flows[n])
			n++
		default:
			all = append(all, group{lines: lines, flows: cfg.Flows[n : n+1 : n+1]})
			lines = nil
			open = true
			n++
		}
	}
	if n != len(cfg.Flows) {
		t.Fatalf("%s: %d of %d flows have a line of their own", name, n, len(cfg.Flows))
	}
	return all
}

// readClassBench reads a line of a filter set. The 16 bits of TCP's flags have the low byte first.
func readClassBench(t *testing.T, line string) []string {
	t.Helper()
	var src, dst string
	var sport, dport [2]int
	var proto, protoMask, flags, flagsMask int
	if _, err := fmt.Sscanf(line, "@%s %s %d : %d %d : %d 0x%x/0x%x 0x%x/0x%x", &src, &dst, &sport[0], &sport[1], &dport[0], &dport[1], &proto, &protoMask, &flags, &flagsMask); err != nil {
		t.Fatalf("%s: %v", line, err)
	}

	text := fmt.Sprintf("ipv4 src %s dst %s", src, dst)
	above := ""
	if sport != [2]int{0, 65535} {
		above += fmt.Sprintf(" sport %d-%d", sport[0], sport[1])
	}
	if dport != [2]int{0, 65535} {
		above += fmt.Sprintf(" dport %d-%d", dport[0], dport[1])
	}
	if flagsMask != 0 {
		above += fmt.Sprintf(" flags %#x/%#x", swap(flags), swap(flagsMask))
	}
	switch {
	case proto == flow.ProtoTCP:
		text += " tcp" + above
	case proto == flow.ProtoUDP:
		text += " udp" + above
	case above != "":
		t.Fatalf("%s: ports or flags without TCP and UDP", line)
	case protoMask != 0:
		text += fmt.Sprintf(" proto %d", proto)
	}
	return []string{text}
}

func swap(v int) int { return v>>8 | v&0xff<<8 }

// readOVS reads the fields of a line of a dump. Lines of conjunctions and of tunnels have no match of their own: it
// returns nothing.
func readOVS(t *testing.T, line string) []string {
	t.Helper()
	fields, actions, _ := strings.Cut(line, " actions=")
	terms := map[string]string{} // by clause
	add := func(clause, term string) { terms[clause] += " " + term }
	ip, upper := "ipv4", ""
	for field := range strings.SplitSeq(fields, ",") {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "priority", "in_port":
		case "tun_id", "tun_src", "conj_id":
			return nil
		case "arp", "mpls":
			add(key, "")
		case "mplsm":
			add("eth", "type 0x8848")
		case "ip":
			add("eth", "type 0x0800")
		case "ipv6":
			add("eth", "type 0x86dd")
			ip = "ipv6"
		case "tcp", "udp", "sctp", "icmp":
			add("ipv4", "")
			add(key, "")
			upper = key
		case "tcp6", "icmp6":
			ip, upper = "ipv6", strings.TrimSuffix(key, "6")
			add("ipv6", "")
			add(upper, "")
		case "dl_vlan":
			add("vlan", "id "+value)
		case "dl_vlan_pcp":
			add("vlan", "pcp "+value)
		case "vlan_tci":
			add("untagged", "")
		case "dl_src", "dl_dst", "dl_type":
			add("eth", strings.TrimPrefix(key, "dl_")+" "+value)
		case "arp_op", "mpls_label", "mpls_bos":
			clause, name, _ := strings.Cut(key, "_")
			add(clause, name+" "+value)
		case "arp_spa":
			add("arp", "sender "+value)
		case "arp_tpa":
			add("arp", "target "+value)
		case "nw_src", "nw_dst", "nw_proto", "nw_ttl":
			add("ipv4", strings.TrimPrefix(key, "nw_")+" "+value)
		case "ipv6_src", "ipv6_dst":
			add("ipv6", strings.TrimPrefix(key, "ipv6_")+" "+value)
		case "nw_tos":
			add("ipv4", "tos "+value+"/0xfc")
		case "nw_ecn":
			add("ipv4", "tos "+value+"/0x03")
		case "nw_frag":
			add("ipv4", "frag "+value)
		case "tp_src", "tp_dst":
			add(upper, key[3:4]+"port "+value)
		case "tcp_flags":
			set, clear, _ := strings.Cut(strings.TrimPrefix(value, "+"), "-")
			add("tcp", "flags "+set+"/"+set+","+clear)
		case "icmp_type", "icmp_code":
			add("icmp", strings.TrimPrefix(key, "icmp_")+" "+value)
		default:
			t.Fatalf("%s: no such field is known here: %s", line, key)
		}
	}
	if strings.HasPrefix(actions, "conjunction") {
		return nil
	}

	var words []string
	for _, clause := range []string{"eth", "vlan", "untagged", "arp", "mpls", ip, upper} {
		if text, ok := terms[clause]; ok {
			words = append(words, clause+text)
		}
	}
	text := strings.Join(words, " ")
	if text == "" {
		text = "any"
	}
	if strings.Contains(text, "frag not_later") {
		return []string{strings.Replace(text, "not_later", "no", 1), strings.Replace(text, "not_later", "first", 1)}
	}
	return []string{text}
}

// The lines of ClassBench and of Open vSwitch, read by the test alone, match the packets of the flows below them, and no
// others.
func TestTranslatedFlowsMatchThePacketsOfTheLinesAboveThem(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Uint64(t), 0))
	for file, read := range map[string]func(*testing.T, string) []string{"classbench.yaml": readClassBench, "ovs.yaml": readOVS} {
		compared := 0
		for _, g := range groups(t, file) {
			var theirs []flow.Flow
			for _, line := range g.lines {
				for _, text := range read(t, line) {
					m, err := flow.ParseMatch(text)
					if err != nil {
						t.Fatalf("%s: %v", line, err)
					}
					theirs = append(theirs, flow.Flow{Name: line, Match: m, Interface: g.flows[0].Interface})
				}
			}
			if len(theirs) == 0 {
				continue
			}
			compared++
			covers(t, rng, theirs, g.flows)
			covers(t, rng, g.flows, theirs)
		}
		if compared < 25 {
			t.Errorf("%s: only %d groups were compared", file, compared)
		}
	}
}

// covers checks that each packet of one of inner is one of outer, too.
func covers(t *testing.T, rng *rand.Rand, outer, inner []flow.Flow) {
	t.Helper()
	matcher := oracle.New(outer)
	for _, f := range inner {
		packets := packetsOf(rng, f, 50)
		if len(packets) == 0 {
			t.Errorf("no packet of %s", f.Name)
		}
		for _, p := range packets {
			if _, ok := matcher.Match(p); !ok {
				t.Errorf("%s has a packet that %s has not: %x", f.Name, outer[0].Name, p.Frame)
				break
			}
		}
	}
}

// A verdict, a port and a priority of the line are those of the flow.
func TestTranslatedFlowsHaveTheActionThePortAndThePriorityOfTheirLines(t *testing.T) {
	port := regexp.MustCompile(`in_port=(eth\d+)`)
	priority := regexp.MustCompile(`^priority=(\d+)`)
	for _, file := range []string{"nftables.yaml", "ovs.yaml"} {
		for _, g := range groups(t, file) {
			for _, line := range g.lines {
				for _, f := range g.flows {
					if drops := strings.HasSuffix(line, "drop"); drops != (f.Action == flow.Drop) {
						t.Errorf("%s: the action of %s is %q: %s", file, f.Name, f.Action, line)
					}
					if file == "nftables.yaml" {
						continue
					}
					if m := priority.FindStringSubmatch(line); m == nil || m[1] != fmt.Sprint(65535-int(f.Priority)) {
						t.Errorf("%s: the priority of %s is %d: %s", file, f.Name, f.Priority, line)
					}
					if m := port.FindStringSubmatch(line); m == nil && f.Interface != "" || m != nil && m[1] != f.Interface {
						t.Errorf("%s: the interface of %s is %q: %s", file, f.Name, f.Interface, line)
					}
				}
			}
		}
	}
}
