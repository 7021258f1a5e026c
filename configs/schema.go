package configs

import (
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// The limits of dataplane.Config.Validate, to report a line with an error. TestBoundsAreThoseOfPackageDataplane and FuzzParse
// keep the two equal.
const (
	mostCounters = 1 << 24
	mostLatency  = 1 << 20
	mostHistory  = 1 << 24
	mostFlows    = dataplane.MostFlows
	mostCPU      = math.MaxInt32
	mostCommands = 1_000_000
	leastPeriod  = 100 * time.Microsecond

	mostLabelBytes = 255 // of a flow, as flow.Flow.Validate counts them
)

// config decodes the main file and the files it includes.
func (d *decoder) config(n *yaml.Node, cfg *dataplane.Config) {
	main := &fragment{decoder: d}
	files := []*fragment{main}
	var words, sets *yaml.Node
	simulated := false // backend sim, or a backend that could not be decoded and might be sim
	d.mapping(n, "the configuration",
		entry{"instance", func(_, v *yaml.Node) { d.instance(v, &cfg.Instance) }},
		entry{"backend", func(key, v *yaml.Node) {
			word(d, &cfg.Backend, "backend", flow.Backends()...)(key, v)
			simulated = cfg.Backend == "sim" || cfg.Backend == ""
		}},
		entry{"start", word(d, &cfg.Start, "start", dataplane.StartStrict, dataplane.StartDegraded)},
		entry{"include", func(_, v *yaml.Node) { files = append(files, d.include(v)...) }},
		entry{"interfaces", func(_, v *yaml.Node) { main.interfaces = v }},
		entry{"mirror", func(_, v *yaml.Node) { d.mirror(v, &cfg.Mirror) }},
		entry{"poll", func(_, v *yaml.Node) { d.poll(v, &cfg.Poll) }},
		entry{"xdp", func(_, v *yaml.Node) { d.xdp(v, &cfg.XDP) }},
		entry{"rdma", func(_, v *yaml.Node) { d.rdma(v, &cfg.RDMA) }},
		entry{"sets", func(_, v *yaml.Node) { sets = v }},
		entry{"flows", func(_, v *yaml.Node) { main.flows = v }},
		entry{"queue_pairs", func(_, v *yaml.Node) { main.pairs = v }},
		entry{"words", func(_, v *yaml.Node) {
			words = v
			d.words(v, &cfg.Words)
		}},
	)

	// The order matters. Flows refer to interfaces and sets, and queue pairs and words share their names with flows.
	if sets != nil {
		d.sets(sets, cfg)
	}
	sure := entries(files, cfg)
	for _, err := range cfg.WordsErrors() {
		d.bad(words, err.Error(), "see docs/embedding.md")
	}
	d.included = append(d.included, files[1:]...)

	if len(cfg.Interfaces) > 0 || !sure || n.Kind != yaml.MappingNode && !isNull(n) {
		return
	}
	where := n
	if main.interfaces != nil {
		where = main.interfaces
	}
	d.noInterface(where, cfg, simulated)
}

// noInterface reports flows that need an interface if the configuration has none.
func (d *decoder) noInterface(where *yaml.Node, cfg *dataplane.Config, simulated bool) {
	if !simulated && len(cfg.QueuePairs)+len(cfg.Words) == 0 {
		d.badAt(where.Line, where.Column, 1, "interfaces: none to count on", `name at least one, as "interfaces: [eth0]", or set "backend: sim"`)
		return
	}
	for _, f := range cfg.Flows {
		switch {
		case f.Backend == "" && !simulated:
			d.badAt(where.Line, where.Column, 1, fmt.Sprintf("interfaces: none to count flow %q on", f.Name), `name at least one, as "interfaces: [eth0]"`)
			return
		case f.Backend != "" && f.Backend != "sim":
			d.badAt(where.Line, where.Column, 1, fmt.Sprintf("interfaces: none to count flow %q on, whose backend is %s", f.Name, f.Backend),
				`name at least one, as "interfaces: [eth0]", or leave out the flow's backend`)
			return
		}
	}
}

// instance decodes the name of the instance.
func (d *decoder) instance(n *yaml.Node, to *string) {
	s, ok := d.scalar(n, "instance")
	if ok && dataplane.ValidateInstance(s) != nil {
		d.bad(n, fmt.Sprintf("instance: %q is no name", clip(s)), "use 1 to 32 characters of a-z, 0-9 and -")
		return
	}
	*to = s
}

func (d *decoder) poll(n *yaml.Node, p *dataplane.PollConfig) {
	var idle *yaml.Node
	idlePeriod := d.duration(&p.IdlePeriod, "poll.idle_period", 0, "")
	d.mapping(n, "poll",
		entry{"period", d.duration(&p.Period, "poll.period", leastPeriod, "for less, use poll.busy")},
		entry{"idle_period", func(key, v *yaml.Node) {
			idle = v
			idlePeriod(key, v)
		}},
		entry{"busy", d.bool(&p.Busy, "poll.busy")},
		entry{"cpu", d.int(&p.CPU, "poll.cpu", 0, mostCPU)},
	)
	if err := p.ValidateIdle(); err != nil && idle != nil {
		d.bad(idle, err.Error(), "equal to poll.period switches it off")
	}
}

func (d *decoder) xdp(n *yaml.Node, x *dataplane.XDPConfig) {
	d.mapping(n, "xdp",
		entry{"pin_dir", d.text(&x.PinDir, "xdp.pin_dir")},
		entry{"max_flows", d.int(&x.MaxFlows, "xdp.max_flows", 0, mostFlows)},
		entry{"worst_cost", d.int(&x.WorstCost, "xdp.worst_cost", 0, dataplane.MostWorstCost)},
		entry{"keep_pins", d.bool(&x.KeepPins, "xdp.keep_pins")},
		entry{"tcx", word(d, &x.TCX, "xdp.tcx", "first", "last")},
		entry{"beside", func(_, v *yaml.Node) { d.beside(v, &x.Beside) }},
	)
}

// beside decodes the list for dataplane.XDPConfig.Beside.
func (d *decoder) beside(n *yaml.Node, to *[]dataplane.Beside) {
	d.sequence(n, "xdp.beside", func(i int, n *yaml.Node) {
		var b dataplane.Beside
		word(d, &b, fmt.Sprintf("xdp.beside[%d]", i), dataplane.Besides()...)(nil, n)
		if b != "" && slices.Contains(*to, b) {
			d.bad(n, fmt.Sprintf("xdp.beside[%d]: %s is listed twice", i, b), "remove one")
			return
		}
		if b != "" {
			*to = append(*to, b)
		}
	})
}

func (d *decoder) rdma(n *yaml.Node, r *dataplane.RDMAConfig) {
	d.mapping(n, "rdma",
		entry{"library", d.library(&r.Library, "rdma.library", "libibverbs.so.1")},
		entry{"mlx5", d.library(&r.MLX5, "rdma.mlx5", "libmlx5.so.1")},
		entry{"efa", d.library(&r.EFA, "rdma.efa", "libefa.so.1")},
		entry{"commands_per_second", d.int(&r.CommandsPerSecond, "rdma.commands_per_second", 0, mostCommands)},
		entry{"byte_basis", word(d, &r.ByteBasis, "rdma.byte_basis", dataplane.ByteBases()...)},
		entry{"steal", d.bool(&r.Steal, "rdma.steal")},
		entry{"audit", d.bool(&r.Audit, "rdma.audit")},
	)
}

// library decodes the absolute path of a shared library. For a relative path the loader would search other directories.
func (d *decoder) library(to *string, what, soname string) func(key, value *yaml.Node) {
	return func(_, n *yaml.Node) {
		s, ok := d.scalar(n, what)
		if ok && s != "" && !filepath.IsAbs(s) {
			d.bad(n, fmt.Sprintf("%s: %q is no whole path", what, clip(s)), "write it from / on, or leave it out: the loader knows where "+soname+" is")
			return
		}
		*to = s
	}
}

// interfaces decodes the interfaces of one file into cfg. first has the place of each name in all files.
func (d *decoder) interfaces(n *yaml.Node, cfg *dataplane.Config, first map[string]place) {
	d.sequence(n, "interfaces", func(i int, n *yaml.Node) {
		what := fmt.Sprintf("interfaces[%d]", i)
		var found dataplane.Interface
		name := n
		if n.Kind == yaml.ScalarNode && !isNull(n) {
			found.Name = n.Value
		} else {
			d.mapping(n, what,
				entry{"name", func(key, v *yaml.Node) {
					name = v
					d.text(&found.Name, what+".name")(key, v)
				}},
				entry{"mode", word(d, &found.Mode, what+".mode", "auto", "native", "generic", "tcx")},
				entry{"optional", d.bool(&found.Optional, what+".optional")},
				entry{"direction", word(d, &found.Direction, what+".direction", dataplane.InterfaceDirections()...)},
			)
			if n.Kind != yaml.MappingNode && !isNull(n) {
				return
			}
		}

		at, twice := first[found.Name]
		switch bad := (dataplane.Interface{Name: found.Name}).Validate(); {
		case found.Name == "":
			d.bad(name, what+": the interface has no name", "name it as `ip link` does")
		case bad != nil && found.IsPattern():
			d.bad(name, fmt.Sprintf("%s: %q is no pattern of names", what, clip(found.Name)),
				`it has *, ?, [a-z] or [^a-z], and at most 64 bytes, without blanks, / and :`)
		case bad != nil:
			d.bad(name, fmt.Sprintf("%s: %q is no name of an interface", what, clip(found.Name)), "it has 1 to 15 bytes, without blanks, / and :")
		case twice:
			d.bad(name, fmt.Sprintf("%s: %q is listed twice, first %s", what, found.Name, at.from(d)), "leave one out")
		default:
			first[found.Name] = place{d.file, name.Line}
		}
		cfg.Interfaces = append(cfg.Interfaces, found)
	})
}

func (d *decoder) mirror(n *yaml.Node, m *dataplane.MirrorConfig) {
	d.mapping(n, "mirror",
		entry{"path", d.text(&m.Path, "mirror.path")},
		entry{"counters", d.int(&m.Counters, "mirror.counters", 0, mostCounters)},
		entry{"latency_counters", d.int(&m.LatencyCounters, "mirror.latency_counters", 0, mostLatency)},
		entry{"history", d.int(&m.History, "mirror.history", -1, mostHistory)},
		entry{"history_period", d.duration(&m.HistoryPeriod, "mirror.history_period", 0, "")},
		entry{"mode", func(_, v *yaml.Node) { d.mode(v, "mirror.mode", 0o644, &m.Mode) }},
		entry{"wait_group", func(_, v *yaml.Node) { d.group(v, "mirror.wait_group", &m.WaitGroup) }},
		entry{"live_mode", func(_, v *yaml.Node) { d.mode(v, "mirror.live_mode", 0o666, &m.LiveMode) }},
		entry{"live_group", func(_, v *yaml.Node) { d.group(v, "mirror.live_group", &m.LiveGroup) }},
		entry{"words_mode", func(_, v *yaml.Node) { d.mode(v, "mirror.words_mode", 0o666, &m.WordsMode) }},
		entry{"words_group", func(_, v *yaml.Node) { d.group(v, "mirror.words_group", &m.WordsGroup) }},
	)
}

// words decodes the names of reserved words.
func (d *decoder) words(n *yaml.Node, to *[]string) {
	d.sequence(n, "words", func(i int, n *yaml.Node) {
		if s, ok := d.scalar(n, fmt.Sprintf("words[%d]", i)); ok {
			*to = append(*to, s)
		}
	})
}

// group decodes the name or the number of a group.
func (d *decoder) group(n *yaml.Node, what string, to *string) {
	s, ok := d.scalar(n, what)
	if ok && strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == ':' || r == 0x7f }) {
		d.bad(n, fmt.Sprintf("%s: %q is no name of a group", what, clip(s)), "name a group of /etc/group, or its number")
		return
	}
	*to = s
}

// mode decodes permissions in octal, as for chmod. most has the bits that are allowed.
func (d *decoder) mode(n *yaml.Node, what string, most fs.FileMode, to *fs.FileMode) {
	s, ok := d.scalar(n, what)
	if !ok {
		return
	}
	digits := strings.TrimPrefix(s, "0o")
	v, err := strconv.ParseUint(digits, 8, 12)
	switch m := fs.FileMode(v); {
	case err != nil:
		d.bad(n, fmt.Sprintf("%s: %q is no mode of a file", what, clip(s)), "write it in octal, as 0644")
	case digits == s && s[0] != '0':
		d.bad(n, fmt.Sprintf("%s: %q may be decimal or octal", what, clip(s)), fmt.Sprintf("did you mean %q?", "0"+s))
	case m&^most == 0 && (m == 0 || m&0o200 != 0):
		*to = m
	case most == 0o644:
		d.bad(n, fmt.Sprintf("%s: %s lets others write, or the owner not", what, clip(s)), "only the owner may write, as in 0644 or 0600")
	default:
		d.bad(n, fmt.Sprintf("%s: %s has bits beside reading and writing, or lets the owner not write", what, clip(s)), "write 0660, or 0600 without a group")
	}
}
