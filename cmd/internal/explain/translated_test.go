package explain

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
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

// filter reads a line of a ClassBench filter set, with its 16 bits of TCP's flags in the order of the header.
func filter(t *testing.T, line string) flow.Match {
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
	m, err := flow.ParseMatch(text)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return m
}

func swap(v int) int { return v>>8 | v&0xff<<8 }

// The flows of classbench.yaml match the packets of the filters above them, and no others.
func TestTranslatedFiltersOfClassBenchMatchTheSamePackets(t *testing.T) {
	file := filepath.Join(translated, "classbench.yaml")
	cfg, err := configs.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}

	rng := rand.New(rand.NewPCG(seed.Uint64(t), 0))
	_, lines, _ := strings.Cut(string(text), "\nflows:\n")
	var filters []flow.Flow
	compared := 0
	for line := range strings.Lines(lines) {
		line = strings.TrimSpace(line)
		if theirs, ok := strings.CutPrefix(line, "#> "); ok {
			filters = append(filters, flow.Flow{Name: theirs, Match: filter(t, theirs)})
			continue
		}
		if !strings.HasPrefix(line, "- {") {
			continue
		}
		f := cfg.Flows[compared]
		of := oracle.New(filters)
		for _, p := range packetsOf(rng, f, 30) {
			if _, ok := of.Match(p); !ok {
				t.Errorf("%s matches a packet that no filter above it matches: %x", f.Name, p.Frame)
			}
		}
		for _, one := range filters {
			packets := packetsOf(rng, one, 30)
			for _, p := range packets {
				if !oracle.Matches(f.Match, p) {
					t.Errorf("%s does not match a packet of %s: %x", f.Name, one.Name, p.Frame)
				}
			}
			if len(packets) == 0 {
				t.Errorf("no packet of %s", one.Name)
			}
		}
		filters = nil
		compared++
	}
	if compared != len(cfg.Flows) {
		t.Errorf("%d of %d flows were compared", compared, len(cfg.Flows))
	}
}
