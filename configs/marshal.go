package configs

import (
	"fmt"
	"io/fs"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// Marshal encodes a configuration as YAML. [Parse] returns an equal one. Matches become text, and zero values are left out.
// Marshal fails if the configuration is invalid.
func Marshal(cfg dataplane.Config) ([]byte, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("writing configuration: %w: %w", dataplane.ErrInvalid, err)
	}
	for what, text := range map[string]string{
		"mirror.path":        cfg.Mirror.Path,
		"mirror.wait_group":  cfg.Mirror.WaitGroup,
		"mirror.live_group":  cfg.Mirror.LiveGroup,
		"mirror.words_group": cfg.Mirror.WordsGroup,
		"xdp.pin_dir":        cfg.XDP.PinDir,
		"rdma.library":       cfg.RDMA.Library,
		"rdma.mlx5":          cfg.RDMA.MLX5,
		"rdma.efa":           cfg.RDMA.EFA,
	} {
		if !utf8.ValidString(text) {
			return nil, fmt.Errorf("writing configuration: %w: %s %q is not UTF-8", dataplane.ErrInvalid, what, text)
		}
	}

	out := configYAML{
		Instance: cfg.Instance,
		Backend:  string(cfg.Backend),
		Start:    string(cfg.Start),
		Mirror:   mirrorToYAML(cfg.Mirror),
		Poll: pollYAML{
			Period:     durationText(cfg.Poll.Period),
			IdlePeriod: durationText(cfg.Poll.IdlePeriod),
			Busy:       cfg.Poll.Busy,
			CPU:        cfg.Poll.CPU,
		},
		XDP:   xdpYAML(cfg.XDP),
		RDMA:  rdmaYAML(cfg.RDMA),
		Words: cfg.Words,
	}
	for _, in := range cfg.Interfaces {
		out.Interfaces = append(out.Interfaces, interfaceToYAML(in))
	}
	out.Sets = setsToYAML(cfg.Sets)
	for _, f := range cfg.Flows {
		out.Flows = append(out.Flows, flowToYAML(f))
	}
	for _, q := range cfg.QueuePairs {
		out.QueuePairs = append(out.QueuePairs, queuePairToYAML(q))
	}

	data, err := yaml.Dump(out, yaml.WithLineWidth(-1))
	if err != nil {
		return nil, fmt.Errorf("writing configuration: %w", err)
	}
	return data, nil
}

// interfaceToYAML returns a mapping, or only the name if no other field is set.
func interfaceToYAML(in dataplane.Interface) any {
	if in == (dataplane.Interface{Name: in.Name}) {
		return in.Name
	}
	return interfaceYAML{
		Name:      in.Name,
		Mode:      string(in.Mode),
		Optional:  in.Optional,
		Direction: string(in.Direction),
	}
}

func mirrorToYAML(m dataplane.MirrorConfig) mirrorYAML {
	return mirrorYAML{
		Path:            m.Path,
		Counters:        m.Counters,
		LatencyCounters: m.LatencyCounters,
		History:         m.History,
		HistoryPeriod:   durationText(m.HistoryPeriod),
		Mode:            modeText(m.Mode),
		WaitGroup:       m.WaitGroup,
		LiveMode:        modeText(m.LiveMode),
		LiveGroup:       m.LiveGroup,
		WordsMode:       modeText(m.WordsMode),
		WordsGroup:      m.WordsGroup,
	}
}

func flowToYAML(f flow.Flow) flowYAML {
	y := flowYAML{
		Name:      f.Name,
		Match:     f.Match.String(),
		Priority:  f.Priority,
		Interface: f.Interface,
		Backend:   string(f.Backend),
		Latency:   f.Latency,
		Labels:    f.Labels,
	}
	if f.Direction != flow.Ingress {
		y.Direction = f.Direction.String()
	}
	if f.Action != flow.Count {
		y.Action = f.Action.String()
	}
	return y
}

func queuePairToYAML(q dataplane.QueuePair) queuePairYAML {
	y := queuePairYAML{
		Name:        q.Name,
		Device:      q.Device,
		Port:        q.Port,
		GIDIndex:    q.GIDIndex,
		Type:        q.Type,
		Source:      q.Source,
		SendDepth:   q.SendDepth,
		Receives:    q.Receives,
		MessageSize: q.MessageSize,
		Connect:     q.Connect,
	}
	if q.Peer != nil {
		y.Peer = q.Peer.String()
	}
	for _, k := range q.Counters {
		y.Counters = append(y.Counters, completionCounterYAML(k))
	}
	return y
}

// modeText formats permissions in octal. The default, 0, becomes "".
func modeText(m fs.FileMode) string {
	if m == 0 {
		return ""
	}
	return fmt.Sprintf("%#04o", uint32(m))
}

// durationText formats a duration. The default, 0, becomes "".
func durationText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// The YAML types, with their fields in the order of the file.

type configYAML struct {
	Instance   string     `yaml:"instance,omitempty"`
	Backend    string     `yaml:"backend,omitempty"`
	Start      string     `yaml:"start,omitempty"`
	Interfaces []any      `yaml:"interfaces,omitempty"`
	Mirror     mirrorYAML `yaml:"mirror,omitempty"`
	Poll       pollYAML   `yaml:"poll,omitempty"`
	XDP        xdpYAML    `yaml:"xdp,omitempty"`
	RDMA       rdmaYAML   `yaml:"rdma,omitempty"`
	Sets       *yaml.Node `yaml:"sets,omitempty"`
	Flows      []flowYAML `yaml:"flows,omitempty"`

	QueuePairs []queuePairYAML `yaml:"queue_pairs,omitempty"`
	Words      []string        `yaml:"words,omitempty,flow"`
}

type interfaceYAML struct {
	Name      string `yaml:"name"`
	Mode      string `yaml:"mode,omitempty"`
	Optional  bool   `yaml:"optional,omitempty"`
	Direction string `yaml:"direction,omitempty"`
}

type mirrorYAML struct {
	Path            string `yaml:"path,omitempty"`
	Counters        int    `yaml:"counters,omitempty"`
	LatencyCounters int    `yaml:"latency_counters,omitempty"`
	History         int    `yaml:"history,omitempty"`
	HistoryPeriod   string `yaml:"history_period,omitempty"`
	Mode            string `yaml:"mode,omitempty"`
	WaitGroup       string `yaml:"wait_group,omitempty"`
	LiveMode        string `yaml:"live_mode,omitempty"`
	LiveGroup       string `yaml:"live_group,omitempty"`
	WordsMode       string `yaml:"words_mode,omitempty"`
	WordsGroup      string `yaml:"words_group,omitempty"`
}

type pollYAML struct {
	Period     string `yaml:"period,omitempty"`
	IdlePeriod string `yaml:"idle_period,omitempty"`
	Busy       bool   `yaml:"busy,omitempty"`
	CPU        int    `yaml:"cpu,omitempty"`
}

type xdpYAML struct {
	PinDir    string             `yaml:"pin_dir,omitempty"`
	MaxFlows  int                `yaml:"max_flows,omitempty"`
	WorstCost int                `yaml:"worst_cost,omitempty"`
	KeepPins  bool               `yaml:"keep_pins,omitempty"`
	TCX       string             `yaml:"tcx,omitempty"`
	Beside    []dataplane.Beside `yaml:"beside,omitempty,flow"`
}

type rdmaYAML struct {
	Library           string `yaml:"library,omitempty"`
	MLX5              string `yaml:"mlx5,omitempty"`
	EFA               string `yaml:"efa,omitempty"`
	CommandsPerSecond int    `yaml:"commands_per_second,omitempty"`
	Steal             bool   `yaml:"steal,omitempty"`

	ByteBasis dataplane.ByteBasis `yaml:"byte_basis,omitempty"`

	Audit bool `yaml:"audit,omitempty"`
}

type flowYAML struct {
	Name      string            `yaml:"name"`
	Match     string            `yaml:"match"`
	Priority  uint16            `yaml:"priority,omitempty"`
	Direction string            `yaml:"direction,omitempty"`
	Action    string            `yaml:"action,omitempty"`
	Interface string            `yaml:"interface,omitempty"`
	Backend   string            `yaml:"backend,omitempty"`
	Latency   bool              `yaml:"latency,omitempty"`
	Labels    map[string]string `yaml:"labels,omitempty"`
}

type queuePairYAML struct {
	Name        string                     `yaml:"name"`
	Device      string                     `yaml:"device"`
	Port        uint8                      `yaml:"port,omitempty"`
	GIDIndex    int                        `yaml:"gid_index,omitempty"`
	Type        dataplane.QueuePairType    `yaml:"type,omitempty"`
	Counters    []completionCounterYAML    `yaml:"counters,omitempty"`
	Source      dataplane.CompletionSource `yaml:"source,omitempty"`
	SendDepth   int                        `yaml:"send_depth,omitempty"`
	Receives    int                        `yaml:"receives,omitempty"`
	MessageSize int                        `yaml:"message_size,omitempty"`
	Peer        string                     `yaml:"peer,omitempty"`
	Connect     string                     `yaml:"connect,omitempty"`
}

type completionCounterYAML struct {
	Name       string                `yaml:"name"`
	Operations []dataplane.Operation `yaml:"operations,flow"`
}
