package trial

import (
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/probe"
)

// Request is the work of a trial, as JSON. Without a device the trial loads the library and lists the devices.
type Request struct {
	RDMA        dataplane.RDMAConfig
	Device      string
	Flows       bool // the trial counts flows on Port
	Port        uint8
	Shared      bool // ports with interfaces share the device
	Completions bool // the trial makes the objects that count completions
	QueuePairs  []dataplane.QueuePair
	Probe       string   // not empty: a feature of the probe that the process runs in place of a trial
	Interfaces  []string // of a probe that lists the devices
}

// Reply is the reply of a process, as JSON. To a request with Probe it has the devices, if the request names none, or
// the results. To another request it is empty, or has the reason why the device must not be used.
type Reply struct {
	Devices []Device
	Results []probe.Result
	Refused string
}

// Device is a device in a list, as rdma.DescribeDevice describes it.
type Device struct {
	Name   string
	Object string // its name in results
	Counts bool   // it belongs to one of the interfaces of the request
}
