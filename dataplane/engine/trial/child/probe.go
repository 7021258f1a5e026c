package child

import (
	"github.com/flowtally/flowtally/dataplane/engine/queuepair"
	"github.com/flowtally/flowtally/dataplane/engine/rdma"
	"github.com/flowtally/flowtally/dataplane/engine/trial"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/probe"
)

// The features of the host that are probed before its devices.
const (
	FeatureRDMA        = "RDMA"
	FeatureRDMADevices = "RDMA devices"
)

// Object is the object of results about all devices.
const Object = "backend rdma"

// DeviceProbe is a probe of a device. A request names it by the first of its features.
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

// Probe runs the probe that a request names. Without a device it lists the devices. If the library cannot be loaded or
// lists no devices, a result has the reason.
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
		for _, d := range list { // the software NIC has a sysfs as long as the library is open
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
	return reply
}
