package plugin

import (
	"fmt"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	pluginv1 "github.com/flowtally/flowtally/plugin/proto/v1"
)

// Conversions for the results of a Service. The host does not trust any field: the plugin may be faulty or hostile.

var severities = map[dataplane.Severity]pluginv1.Severity{
	dataplane.Low:    pluginv1.Severity_SEVERITY_LOW,
	dataplane.Medium: pluginv1.Severity_SEVERITY_MEDIUM,
	dataplane.High:   pluginv1.Severity_SEVERITY_HIGH,
}

func infoToProto(i dataplane.Info) *pluginv1.Info {
	return &pluginv1.Info{
		Instance: text(i.Instance),
		Mirror:   text(i.Mirror),
		Version:  text(i.Version),
		Pid:      int64(i.PID),
		Started:  timeToProto(i.Started),
		File:     text(i.File),
	}
}

func infoFromProto(p *pluginv1.Info) dataplane.Info {
	return dataplane.Info{
		Instance: p.GetInstance(),
		Mirror:   p.GetMirror(),
		Version:  p.GetVersion(),
		PID:      int(p.GetPid()),
		Started:  timeFromProto(p.GetStarted()),
		File:     p.GetFile(),
	}
}

func placementsToProto(in []dataplane.Placement) []*pluginv1.Placement {
	out := make([]*pluginv1.Placement, len(in))
	for i := range in {
		p := &in[i]
		out[i] = &pluginv1.Placement{
			Flow:     flowToProto(&p.Flow),
			Source:   sourceToProto(p.Source),
			Counter:  handleToProto(p.Counter),
			Rejected: rejectionsToProto(p.Rejected),
			Order:    p.Order,
		}
	}
	return out
}

func placementsFromProto(in []*pluginv1.Placement) ([]dataplane.Placement, error) {
	out := make([]dataplane.Placement, len(in))
	for i, p := range in {
		f, err := flowFromProto(p.GetFlow())
		if err != nil {
			return nil, fmt.Errorf("reading placement %d of the plugin: %w", i, err)
		}
		out[i] = dataplane.Placement{
			Flow:     f,
			Source:   sourceFromProto(p.GetSource()),
			Counter:  handleFromProto(p.GetCounter()),
			Rejected: rejectionsFromProto(p.GetRejected()),
			Order:    p.GetOrder(),
		}
	}
	return out, nil
}

func sourceToProto(s dataplane.Source) *pluginv1.Source {
	out := &pluginv1.Source{Backend: text(string(s.Backend))}
	for _, d := range s.Devices {
		out.Devices = append(out.Devices, &pluginv1.Device{Backend: text(string(d.Backend)), Name: text(d.Name), Mode: text(string(d.Mode))})
	}
	return out
}

func sourceFromProto(p *pluginv1.Source) dataplane.Source {
	s := dataplane.Source{Backend: flow.Backend(p.GetBackend())}
	for _, d := range p.GetDevices() {
		s.Devices = append(s.Devices, dataplane.Device{Backend: flow.Backend(d.GetBackend()), Name: d.GetName(), Mode: dataplane.Mode(d.GetMode())})
	}
	return s
}

func handleToProto(h dataplane.Handle) *pluginv1.Handle {
	return &pluginv1.Handle{Index: h.Index, Generation: h.Generation}
}

func handleFromProto(p *pluginv1.Handle) dataplane.Handle {
	return dataplane.Handle{Index: p.GetIndex(), Generation: p.GetGeneration()}
}

func rejectionsToProto(in []dataplane.Rejection) (out []*pluginv1.Rejection) {
	for _, r := range in {
		out = append(out, &pluginv1.Rejection{Backend: text(r.Backend), Reason: text(r.Reason), Always: r.Always})
	}
	return out
}

func rejectionsFromProto(in []*pluginv1.Rejection) (out []dataplane.Rejection) {
	for _, r := range in {
		out = append(out, dataplane.Rejection{Backend: r.GetBackend(), Reason: r.GetReason(), Always: r.GetAlways()})
	}
	return out
}

func conditionsToProto(in []dataplane.Condition) []*pluginv1.Condition {
	out := make([]*pluginv1.Condition, len(in))
	for i, c := range in {
		out[i] = &pluginv1.Condition{
			Code:     text(string(c.Code)),
			Severity: severities[c.Severity],
			Object:   text(c.Object),
			Text:     text(c.Text),
			Fix:      text(c.Fix),
			Since:    timeToProto(c.Since),
		}
	}
	return out
}

func conditionsFromProto(in []*pluginv1.Condition) []dataplane.Condition {
	out := make([]dataplane.Condition, len(in))
	for i, p := range in {
		// An unknown severity becomes High.
		severity, ok := keyOf(severities, p.GetSeverity())
		if !ok {
			severity = dataplane.High
		}
		out[i] = dataplane.Condition{
			Code:     dataplane.ConditionCode(p.GetCode()),
			Severity: severity,
			Object:   p.GetObject(),
			Text:     p.GetText(),
			Fix:      p.GetFix(),
			Since:    timeFromProto(p.GetSince()),
		}
	}
	return out
}

func eventToProto(e dataplane.Event) *pluginv1.Event {
	out := &pluginv1.Event{
		Time:   timeToProto(e.Time),
		Kind:   text(string(e.Kind)),
		Code:   text(string(e.Code)),
		Object: text(e.Object),
		Text:   text(e.Text),
		Lost:   e.Lost,
	}
	if u := e.Uncounted; u != (dataplane.Uncounted{}) {
		out.Uncounted = &pluginv1.Uncounted{UncountedPackets: u.Packets, UncountedBytes: u.Bytes, Unknown: u.Unknown}
	}
	return out
}

func eventFromProto(p *pluginv1.Event) dataplane.Event {
	return dataplane.Event{
		Time:   timeFromProto(p.GetTime()),
		Kind:   dataplane.EventKind(p.GetKind()),
		Code:   dataplane.ConditionCode(p.GetCode()),
		Object: p.GetObject(),
		Text:   p.GetText(),
		Lost:   p.GetLost(),
		Uncounted: dataplane.Uncounted{
			Packets: p.GetUncounted().GetUncountedPackets(),
			Bytes:   p.GetUncounted().GetUncountedBytes(),
			Unknown: p.GetUncounted().GetUnknown(),
		},
	}
}
