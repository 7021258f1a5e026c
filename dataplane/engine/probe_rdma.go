package engine

import (
	"context"
	"log/slog"
	"slices"

	"github.com/flowtally/flowtally/dataplane/engine/queuepair"
	"github.com/flowtally/flowtally/dataplane/engine/rdma"
	"github.com/flowtally/flowtally/dataplane/engine/trial"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/probe"
)

// The features of the host that Probe tests before it tests its RDMA devices.
const (
	FeatureRDMA        = "RDMA"
	FeatureRDMADevices = "RDMA devices"
	FeatureCompletions = queuepair.FeatureCompletions
)

// probeRDMA tests the RDMA devices: the devices of o.Interfaces, or all if it names none, devices
// without an interface, such as EFA's, and the devices of o.Devices, or only the last kind if o
// says so. It runs in the network namespace of the calling thread, makes flows without matching
// packets, and removes them.
func probeRDMA(ctx context.Context, o ProbeOptions) []probe.Result {
	g := trial.New(trial.Options{RDMA: o.RDMA, Command: o.Trial, Logger: slog.New(slog.DiscardHandler)})
	if err := g.Library(); err != nil {
		return []probe.Result{probe.Ask(FeatureRDMA, "libibverbs", err)}
	}
	lib, err := ibv.Load(ibv.Options{Library: o.RDMA.Library, MLX5: o.RDMA.MLX5, EFA: o.RDMA.EFA})
	if err != nil {
		return []probe.Result{probe.Ask(FeatureRDMA, "libibverbs", err)}
	}
	defer lib.Close()
	const feature, object = FeatureRDMADevices, "backend rdma"
	there, err := lib.Devices()
	if err != nil {
		return []probe.Result{probe.Ask(feature, object, err)}
	}
	var out []probe.Result
	for _, name := range o.Devices {
		if !slices.ContainsFunc(there, func(d ibv.Device) bool { return d.Name == name }) {
			out = append(out, probe.Ask(FeatureCompletions, "rdma "+name, &probe.UnsupportedError{
				Feature: FeatureCompletions, Object: name, Reason: "there is no device of that name", Fix: "see `rdma dev`, and correct queue_pairs in the configuration",
			}))
		}
	}
	for _, d := range there {
		if ctx.Err() != nil {
			break
		}
		object, counts := rdma.DescribeDevice(d, o.Interfaces)
		if (o.DevicesOnly || !counts) && !slices.Contains(o.Devices, d.Name) {
			continue
		}
		if err := g.Device(trial.Request{Device: d.Name, Flows: true, Port: 1, Completions: true}); err != nil {
			out = append(out, probe.Ask(FeatureRDMADevices, object, err))
			continue
		}
		for _, r := range append(ibv.Probe(lib, d.Name), rdma.ProbeDevX(lib, d.Name), queuepair.Probe(lib, d.Name)) {
			r.Object = object
			out = append(out, r)
		}
	}
	if len(out) == 0 {
		return []probe.Result{probe.Ask(feature, object, &probe.UnsupportedError{
			Feature: feature, Reason: "no RDMA device belongs to an interface that is asked about; flows are counted by XDP",
			Fix: "see `rdma link`; for a ConnectX NIC, load mlx5_ib",
		})}
	}
	return out
}
