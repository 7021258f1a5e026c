package trial

import (
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/probe"
)

// Request tells a trial what to do, as JSON on its stdin. Without a device the trial loads the library and lists the
// devices.
type Request struct {
	RDMA        dataplane.RDMAConfig
	Device      string
	Flows       bool // count flows on Port
	Port        uint8
	Shared      bool // several ports with interfaces share the device
	Completions bool // make the objects that count completions
	QueuePairs  []dataplane.QueuePair
	Probe       string   // run the probe of this feature instead of a trial
	Interfaces  []string // for a probe that lists the devices: see Device.Counts
}

// Reply is the reply of a process, as JSON. A probe of a device replies with results, a probe without a device with the
// list of devices. A trial leaves everything empty, or replies with the reason why the device must not be used.
type Reply struct {
	Devices []Device
	Results []probe.Result
	Refused string
	// CountersPerCommand is the number of counters that the device reads by one command, in the reply of the probe of DevX.
	CountersPerCommand int
	// QueuePair is how to configure queue pairs of the device, in the reply of the probe of completions. Nil: unknown.
	QueuePair *dataplane.QueuePair
}

// Device is an entry of the list of devices, filled by rdma.DescribeDevice.
type Device struct {
	Name   string
	Object string // how results name the device
	Counts bool   // whether it belongs to one of Request.Interfaces
}
