package plugin

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

// maxMatchText bounds the text of one match; the longest valid one is far shorter.
const maxMatchText = 16 << 10

// maxName is far above the limit for names. flow.Validate reports shorter names that are too long.
const maxName = 1024

var (
	directions = map[flow.Direction]pluginv1.Direction{
		flow.Ingress: pluginv1.Direction_DIRECTION_INGRESS,
		flow.Egress:  pluginv1.Direction_DIRECTION_EGRESS,
	}
	actions = map[flow.Action]pluginv1.Action{
		flow.Count: pluginv1.Action_ACTION_COUNT,
		flow.Drop:  pluginv1.Action_ACTION_DROP,
	}
)

// invalid makes an error that satisfies ErrInvalid.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", dataplane.ErrInvalid, fmt.Errorf(format, args...))
}

// flowsToProto validates first: the text of an invalid match could parse as another match.
func flowsToProto(flows []flow.Flow) ([]*pluginv1.Flow, error) {
	out := make([]*pluginv1.Flow, len(flows))
	var errs []error
	for i := range flows {
		if err := checkFlow(&flows[i]); err != nil {
			errs = append(errs, err)
			continue
		}
		out[i] = flowToProto(&flows[i])
	}
	if errs != nil {
		return nil, invalid("%w", errors.Join(errs...))
	}
	return out, nil
}

// checkFlow is flow.Validate, and also checks that strings are UTF-8, as protobuf requires.
func checkFlow(f *flow.Flow) error {
	if err := f.Validate(); err != nil {
		return err
	}
	for _, s := range []string{f.Name, f.Interface} {
		if !utf8.ValidString(s) {
			return fmt.Errorf("flow %q: %q is not UTF-8", f.Name, s)
		}
	}
	for k, v := range f.Labels {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return fmt.Errorf("flow %q: label %q: %q is not UTF-8", f.Name, k, v)
		}
	}
	return nil
}

func flowToProto(f *flow.Flow) *pluginv1.Flow {
	return &pluginv1.Flow{
		Name: f.Name, Match: f.Match.String(), Priority: uint32(f.Priority),
		Direction: directions[f.Direction], Action: actions[f.Action],
		Interface: f.Interface, Latency: f.Latency, Labels: maps.Clone(f.Labels), Backend: string(f.Backend),
	}
}

// flowsFromProto reports every invalid flow, not only the first one.
func flowsFromProto(in []*pluginv1.Flow) ([]flow.Flow, error) {
	out := slices.Grow([]flow.Flow(nil), len(in))
	var errs []error
	for i, p := range in {
		f, err := flowFromProto(p)
		if err != nil {
			errs = append(errs, fmt.Errorf("flow %d: %w", i, err))
			continue
		}
		out = append(out, f)
	}
	if errs != nil {
		return nil, invalid("%w", errors.Join(errs...))
	}
	return out, nil
}

func flowFromProto(p *pluginv1.Flow) (flow.Flow, error) {
	if p == nil {
		return flow.Flow{}, errors.New("no flow in the message")
	}
	f := flow.Flow{
		Name: p.Name, Priority: uint16(p.Priority), Interface: p.Interface, Latency: p.Latency, Backend: flow.Backend(p.Backend),
	}
	if len(p.Labels) > 0 {
		f.Labels = p.Labels
	}
	if len(p.Name) > maxName {
		return flow.Flow{}, fmt.Errorf("%q…: a name of %d bytes is too long: use %d at most",
			strings.ToValidUTF8(p.Name[:60], ""), len(p.Name), maxName) // errors quote names
	}
	var errs []error
	if p.Priority > math.MaxUint16 {
		errs = append(errs, fmt.Errorf("priority %d is above %d", p.Priority, math.MaxUint16))
	}
	var ok bool
	if f.Direction, ok = keyOf(directions, p.Direction); !ok {
		errs = append(errs, fmt.Errorf("direction %d is not known", p.Direction))
	}
	if f.Action, ok = keyOf(actions, p.Action); !ok {
		errs = append(errs, fmt.Errorf("action %d is not known", p.Action))
	}
	if len(p.Match) > maxMatchText {
		errs = append(errs, fmt.Errorf("match of %d bytes is longer than %d", len(p.Match), maxMatchText))
	} else {
		var err error
		if f.Match, err = flow.ParseMatch(p.Match); err != nil {
			errs = append(errs, err)
		}
	}
	if errs == nil {
		words := f
		words.Match = flow.Match{} // ParseMatch has validated it
		if err := words.Validate(); err != nil {
			errs = append(errs, err)
		}
	}
	if errs != nil {
		return flow.Flow{}, fmt.Errorf("%.80q: %w", p.Name, errors.Join(errs...))
	}
	return f, nil
}

// keyOf returns the key of a value in a map that is one to one.
func keyOf[K, V comparable](m map[K]V, v V) (K, bool) {
	for k, w := range m {
		if w == v {
			return k, true
		}
	}
	var zero K
	return zero, false
}

func configToProto(c dataplane.Config) (*pluginv1.Config, error) {
	flows, err := flowsToProto(c.Flows)
	if err != nil {
		return nil, err
	}
	pairs, err := queuePairsToProto(c.QueuePairs)
	if err != nil {
		return nil, err
	}
	out := &pluginv1.Config{
		Instance: c.Instance, Backend: string(c.Backend), Start: string(c.Start), Flows: flows, QueuePairs: pairs, Words: c.Words,
		Mirror: &pluginv1.MirrorConfig{
			Path: c.Mirror.Path, Counters: int64(c.Mirror.Counters), LatencyCounters: int64(c.Mirror.LatencyCounters),
			History: int64(c.Mirror.History), HistoryPeriodNs: int64(c.Mirror.HistoryPeriod), Mode: uint32(c.Mirror.Mode),
			WaitGroup: c.Mirror.WaitGroup, LiveMode: uint32(c.Mirror.LiveMode), LiveGroup: c.Mirror.LiveGroup,
			WordsMode: uint32(c.Mirror.WordsMode), WordsGroup: c.Mirror.WordsGroup,
		},
		Poll: &pluginv1.PollConfig{PeriodNs: int64(c.Poll.Period), IdlePeriodNs: int64(c.Poll.IdlePeriod), Busy: c.Poll.Busy, Cpu: int64(c.Poll.CPU)},
		Xdp:  &pluginv1.XDPConfig{PinDir: c.XDP.PinDir, MaxFlows: int64(c.XDP.MaxFlows), WorstCost: int64(c.XDP.WorstCost), KeepPins: c.XDP.KeepPins, Tcx: c.XDP.TCX, Beside: texts(c.XDP.Beside)},
		Rdma: &pluginv1.RDMAConfig{
			Library: c.RDMA.Library, Mlx5: c.RDMA.MLX5, Efa: c.RDMA.EFA, CommandsPerSecond: int64(c.RDMA.CommandsPerSecond),
			Steal: c.RDMA.Steal, Audit: c.RDMA.Audit,
		},
	}
	if out.Interfaces, err = interfacesToProto(c.Interfaces); err != nil {
		return nil, err
	}
	texts := []string{c.Instance, string(c.Backend), string(c.Start), c.Mirror.Path, c.Mirror.WaitGroup, c.Mirror.LiveGroup, c.Mirror.WordsGroup, c.XDP.PinDir, c.RDMA.Library, c.RDMA.MLX5, c.RDMA.EFA}
	for _, s := range append(texts, c.Words...) {
		if !utf8.ValidString(s) {
			return nil, invalid("configuration: %q is not UTF-8", s)
		}
	}
	return out, nil
}

// configFromProto checks the ranges that the types of the wire do not. The instance validates the configuration.
func configFromProto(p *pluginv1.Config) (dataplane.Config, error) {
	if p == nil {
		return dataplane.Config{}, invalid("no configuration in the message")
	}
	flows, ferr := flowsFromProto(p.Flows)
	errs := []error{ferr}
	num := func(field string, v int64) int {
		if int64(int(v)) != v {
			errs = append(errs, invalid("%s: %d is out of range", field, v))
		}
		return int(v)
	}
	pairs, perr := queuePairsFromProto(p.QueuePairs, num)
	errs = append(errs, perr)
	c := dataplane.Config{
		Instance: p.Instance, Backend: flow.Backend(p.Backend), Start: dataplane.StartMode(p.Start), Flows: flows, QueuePairs: pairs, Words: p.Words,
		Mirror: dataplane.MirrorConfig{
			Path:            p.GetMirror().GetPath(),
			Counters:        num("mirror.counters", p.GetMirror().GetCounters()),
			LatencyCounters: num("mirror.latency_counters", p.GetMirror().GetLatencyCounters()),
			History:         num("mirror.history", p.GetMirror().GetHistory()),
			HistoryPeriod:   time.Duration(p.GetMirror().GetHistoryPeriodNs()),
			Mode:            fs.FileMode(p.GetMirror().GetMode()),
			WaitGroup:       p.GetMirror().GetWaitGroup(),
			LiveMode:        fs.FileMode(p.GetMirror().GetLiveMode()),
			LiveGroup:       p.GetMirror().GetLiveGroup(),
			WordsMode:       fs.FileMode(p.GetMirror().GetWordsMode()),
			WordsGroup:      p.GetMirror().GetWordsGroup(),
		},
		Poll: dataplane.PollConfig{
			Period:     time.Duration(p.GetPoll().GetPeriodNs()),
			IdlePeriod: time.Duration(p.GetPoll().GetIdlePeriodNs()),
			Busy:       p.GetPoll().GetBusy(),
			CPU:        num("poll.cpu", p.GetPoll().GetCpu()),
		},
		XDP: dataplane.XDPConfig{
			PinDir:    p.GetXdp().GetPinDir(),
			MaxFlows:  num("xdp.max_flows", p.GetXdp().GetMaxFlows()),
			WorstCost: num("xdp.worst_cost", p.GetXdp().GetWorstCost()),
			KeepPins:  p.GetXdp().GetKeepPins(),
			TCX:       p.GetXdp().GetTcx(),
			Beside:    words[dataplane.Beside](p.GetXdp().GetBeside()),
		},
		RDMA: dataplane.RDMAConfig{
			Library:           p.GetRdma().GetLibrary(),
			MLX5:              p.GetRdma().GetMlx5(),
			EFA:               p.GetRdma().GetEfa(),
			CommandsPerSecond: num("rdma.commands_per_second", p.GetRdma().GetCommandsPerSecond()),
			Steal:             p.GetRdma().GetSteal(),
			Audit:             p.GetRdma().GetAudit(),
		},
	}
	var ierr error
	c.Interfaces, ierr = interfacesFromProto(p.Interfaces)
	errs = append(errs, ierr)
	if err := errors.Join(errs...); err != nil {
		return dataplane.Config{}, err
	}
	return c, nil
}

// text replaces invalid UTF-8 in a string of the plugin, which protobuf could not carry.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func timeToProto(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// timeFromProto returns the zero time for an absent or invalid time.
func timeFromProto(t *timestamppb.Timestamp) time.Time {
	if t.CheckValid() != nil {
		return time.Time{}
	}
	return t.AsTime()
}

// texts returns words of a configuration as the protocol has them.
func texts[W ~string](list []W) (out []string) {
	for _, w := range list {
		out = append(out, string(w))
	}
	return out
}

// words is the reverse of texts.
func words[W ~string](list []string) (out []W) {
	for _, w := range list {
		out = append(out, W(w))
	}
	return out
}
