package engine

import (
	"context"
	"log/slog"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/queuepair"
	"github.com/flowtally/flowtally/dataplane/engine/rdma"
	"github.com/flowtally/flowtally/dataplane/engine/trial"
	"github.com/flowtally/flowtally/dataplane/engine/trial/child"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/probe"
)

// The features of the host that Probe tests before it tests its RDMA devices.
const (
	FeatureRDMA        = child.FeatureRDMA
	FeatureRDMADevices = child.FeatureRDMADevices
	FeatureCompletions = queuepair.FeatureCompletions
)

// probeRDMA tests the RDMA devices: the devices of o.Interfaces, or all if it names none, devices
// without an interface, such as EFA's, and the devices of o.Devices, or only the last kind if o
// says so. It runs in the network namespace of the calling thread, makes flows without matching
// packets, and removes them.
func probeRDMA(ctx context.Context, o ProbeOptions) []probe.Result {
	g := trial.New(trial.Options{RDMA: o.RDMA, Command: o.Trial, Logger: slog.New(slog.DiscardHandler)})
	ask := g.Probe // in processes of their own, because the probes call verbs that no trial has called
	if o.Trial.Path == "" {
		ask = func(r trial.Request, _ []string) trial.Reply { r.RDMA = o.RDMA; return child.Probe(r, nil) }
	}
	if err := g.Library(); err != nil {
		return []probe.Result{probe.Ask(FeatureRDMA, "libibverbs", err)}
	}
	list := ask(trial.Request{Probe: FeatureRDMADevices, Interfaces: o.Interfaces}, []string{FeatureRDMADevices})
	if len(list.Results) > 0 {
		return list.Results
	}
	there := list.Devices
	var out []probe.Result
	for _, name := range o.Devices {
		if !slices.ContainsFunc(there, func(d trial.Device) bool { return d.Name == name }) {
			out = append(out, probe.Ask(FeatureCompletions, "rdma "+name, &probe.UnsupportedError{
				Feature: FeatureCompletions, Object: name, Reason: "there is no device of that name", Fix: "see `rdma dev`, and correct queue_pairs in the configuration",
			}))
		}
	}
	for _, d := range there {
		if ctx.Err() != nil {
			break
		}
		if (o.DevicesOnly || !d.Counts) && !slices.Contains(o.Devices, d.Name) {
			continue
		}
		if err := g.Device(trial.Request{Device: d.Name, Flows: true, Port: 1, Completions: true}); err != nil {
			out = append(out, probe.Ask(FeatureRDMADevices, d.Object, err))
			continue
		}
		for _, p := range child.DeviceProbes() {
			reply := ask(trial.Request{Device: d.Name, Probe: p.Features[0]}, p.Features)
			for _, r := range reply.Results {
				r.Object = d.Object
				out = append(out, r)
			}
			if n := reply.CountersPerCommand; n > 0 && countsFlows(out, d.Object) {
				out = append(out, rdma.Budget{CommandsPerSecond: o.RDMA.CommandsPerSecond, Period: o.Period}.Result(d.Object, n))
			}
		}
	}
	if len(out) == 0 {
		return []probe.Result{probe.Ask(FeatureRDMADevices, child.Object, &probe.UnsupportedError{
			Feature: FeatureRDMADevices, Reason: "no RDMA device belongs to an interface that is asked about; flows are counted by XDP",
			Fix: "see `rdma link`; for a ConnectX NIC, load mlx5_ib",
		})}
	}
	return out
}

// countsFlows reports whether the results have a mode in which a device counts flows beside the kernel.
func countsFlows(results []probe.Result, object string) bool {
	yes := func(feature string) bool {
		return slices.ContainsFunc(results, func(r probe.Result) bool {
			return r.Object == object && r.Feature == feature && r.Answer == probe.Yes
		})
	}
	return yes(rdma.FeatureDevX) || yes(ibv.FeatureCounters) && (yes(ibv.FeatureDontTrap) || yes(ibv.FeatureEgress))
}

// SuggestQueuePair asks a device for the type and the GID index of its queue pairs, in a process of its own by command,
// because verbs of a device that nobody has tried may crash. It returns false if the device does not tell: an instance
// with the queue pair tells why.
func SuggestQueuePair(rdma dataplane.RDMAConfig, device string, command trial.Command) (dataplane.QueuePair, bool) {
	r := trial.Request{Device: device, Probe: FeatureCompletions, RDMA: rdma}
	var reply trial.Reply
	if command.Path == "" {
		reply = child.Probe(r, nil)
	} else {
		g := trial.New(trial.Options{RDMA: rdma, Command: command, Logger: slog.New(slog.DiscardHandler)})
		reply = g.Probe(r, []string{FeatureCompletions})
	}
	if reply.QueuePair == nil {
		return dataplane.QueuePair{}, false
	}
	return *reply.QueuePair, true
}

// Switchdev returns how an interface belongs to a NIC in switchdev mode, where no configuration lets an instance use its
// RDMA device, or "". It looks in the network namespace of the calling thread.
func Switchdev(netdev string) (string, error) { return rdma.Switchdev(netdev) }
