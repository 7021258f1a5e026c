package plugin

import (
	"errors"
	"io/fs"
	"time"
	"unicode/utf8"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

// configToProto fails on texts that are not UTF-8, which protobuf cannot encode.
func configToProto(c dataplane.Config) (*pluginv1.Config, error) {
	flows, err := flowsToProto(c.Flows)
	if err != nil {
		return nil, err
	}
	pairs, err := queuePairsToProto(c.QueuePairs)
	if err != nil {
		return nil, err
	}
	sets, err := setsToProto(c.Sets)
	if err != nil {
		return nil, err
	}
	out := &pluginv1.Config{
		Instance:   c.Instance,
		Backend:    string(c.Backend),
		Start:      string(c.Start),
		Sets:       sets,
		Flows:      flows,
		QueuePairs: pairs,
		Words:      c.Words,
		Mirror: &pluginv1.MirrorConfig{
			Path:            c.Mirror.Path,
			Counters:        int64(c.Mirror.Counters),
			LatencyCounters: int64(c.Mirror.LatencyCounters),
			History:         int64(c.Mirror.History),
			HistoryPeriodNs: int64(c.Mirror.HistoryPeriod),
			Mode:            uint32(c.Mirror.Mode),
			WaitGroup:       c.Mirror.WaitGroup,
			LiveMode:        uint32(c.Mirror.LiveMode),
			LiveGroup:       c.Mirror.LiveGroup,
			WordsMode:       uint32(c.Mirror.WordsMode),
			WordsGroup:      c.Mirror.WordsGroup,
		},
		Poll: &pluginv1.PollConfig{
			PeriodNs:     int64(c.Poll.Period),
			IdlePeriodNs: int64(c.Poll.IdlePeriod),
			Busy:         c.Poll.Busy,
			Cpu:          int64(c.Poll.CPU),
		},
		Xdp: &pluginv1.XDPConfig{
			PinDir:    c.XDP.PinDir,
			MaxFlows:  int64(c.XDP.MaxFlows),
			WorstCost: int64(c.XDP.WorstCost),
			KeepPins:  c.XDP.KeepPins,
			Tcx:       c.XDP.TCX,
			Beside:    texts(c.XDP.Beside),
		},
		Rdma: &pluginv1.RDMAConfig{
			Library:           c.RDMA.Library,
			Mlx5:              c.RDMA.MLX5,
			Efa:               c.RDMA.EFA,
			CommandsPerSecond: int64(c.RDMA.CommandsPerSecond),
			Steal:             c.RDMA.Steal,
			Audit:             c.RDMA.Audit,
			ByteBasis:         string(c.RDMA.ByteBasis),
		},
	}
	if out.Interfaces, err = interfacesToProto(c.Interfaces); err != nil {
		return nil, err
	}

	carried := []string{
		c.Instance, string(c.Backend), string(c.Start),
		c.Mirror.Path, c.Mirror.WaitGroup, c.Mirror.LiveGroup, c.Mirror.WordsGroup,
		c.XDP.PinDir,
		c.RDMA.Library, c.RDMA.MLX5, c.RDMA.EFA, string(c.RDMA.ByteBasis),
	}
	for _, s := range append(carried, c.Words...) {
		if !utf8.ValidString(s) {
			return nil, invalid("configuration: %q is not UTF-8", s)
		}
	}
	return out, nil
}

// configFromProto checks that numbers fit the types of package dataplane. It does not validate the configuration; the
// instance does.
func configFromProto(p *pluginv1.Config) (dataplane.Config, error) {
	if p == nil {
		return dataplane.Config{}, invalid("no configuration in the message")
	}

	var errs []error
	note := func(err error) { errs = append(errs, err) }
	num := func(field string, v int64) int {
		if int64(int(v)) != v {
			note(invalid("%s: %d is out of range", field, v))
		}
		return int(v)
	}

	flows, err := flowsFromProto(p.Flows)
	note(err)
	pairs, err := queuePairsFromProto(p.QueuePairs, num)
	note(err)
	sets, err := setsFromProto(p.Sets)
	note(err)
	c := dataplane.Config{
		Instance:   p.Instance,
		Backend:    flow.Backend(p.Backend),
		Start:      dataplane.StartMode(p.Start),
		Sets:       sets,
		Flows:      flows,
		QueuePairs: pairs,
		Words:      p.Words,
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
			ByteBasis:         dataplane.ByteBasis(p.GetRdma().GetByteBasis()),
			CommandsPerSecond: num("rdma.commands_per_second", p.GetRdma().GetCommandsPerSecond()),
			Steal:             p.GetRdma().GetSteal(),
			Audit:             p.GetRdma().GetAudit(),
		},
	}
	c.Interfaces, err = interfacesFromProto(p.Interfaces)
	note(err)

	if err := errors.Join(errs...); err != nil {
		return dataplane.Config{}, err
	}
	return c, nil
}
