package child

import (
	"github.com/flowtally/flowtally/dataplane/engine/queuepair"
	"github.com/flowtally/flowtally/dataplane/engine/rdma"
	"github.com/flowtally/flowtally/dataplane/engine/trial"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/probe"
)

// The features of the host. Without them there are no devices to probe.
const (
	FeatureRDMA        = "RDMA"
	FeatureRDMADevices = "RDMA devices"
)

// Object is how results name the whole of the host's RDMA devices.
const Object = "backend rdma"

// DeviceProbe is one probe of a device, which may report several features. A request names the probe by the first.
type DeviceProbe struct {
	Features []string
	run      func(lib *ibv.Library, device string) []probe.Result
}

// DeviceProbes returns the probes of a device, in the order of their results.
func DeviceProbes() []DeviceProbe {
	return []DeviceProbe{
		{[]string{ibv.FeatureRaw, ibv.FeatureFlows, ibv.FeatureCounters, ibv.FeatureDontTrap, ibv.FeatureEgress, ibv.FeatureCompCntrs}, ibv.Probe},
		{[]string{rdma.FeatureDevX}, rdma.ProbeDevX},
		{[]string{queuepair.FeatureCompletions}, queuepair.Probe},
	}
}

// Probe runs the probe named by a request. Without a device it lists the devices. If loading or listing fails, a result
// tells the reason.
func Probe(r trial.Request, calls ibv.Calls) (reply trial.Reply) {
	lib, err := load(r, calls)
	if err != nil {
		reply.Results = []probe.Result{probe.Ask(FeatureRDMA, "libibverbs", err)}
		return reply
	}
	defer lib.Close()

	if r.Device == "" {
		list, err := lib.Devices()
		if err != nil {
			reply.Results = []probe.Result{probe.Ask(FeatureRDMADevices, Object, err)}
		}
		// Describe the devices before closing the library: the software NIC removes its sysfs then.
		for _, d := range list {
			object, counts := rdma.DescribeDevice(d, r.Interfaces)
			reply.Devices = append(reply.Devices, trial.Device{Name: d.Name, Object: object, Counts: counts})
		}
		return reply
	}

	for _, p := range DeviceProbes() {
		if r.Probe == p.Features[0] {
			reply.Results = p.run(lib, r.Device)
		}
	}
	if r.Probe == rdma.FeatureDevX {
		reply.CountersPerCommand = rdma.CountersPerCommand(lib, r.Device)
	}
	if r.Probe == queuepair.FeatureCompletions {
		if q, err := queuepair.Suggest(lib, r.Device); err == nil {
			reply.QueuePair = &q
		}
	}
	return reply
}
