package dataplane

import (
	"slices"
	"strings"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// Source is the backend, and the devices, that count a flow or a queue pair now. With the zero Source nothing
// counts, and the total does not change.
type Source struct {
	// Backend is [flow.XDP], [flow.RDMA] or [flow.Sim].
	Backend flow.Backend
	// Devices that count, RDMA devices first. Sim needs no device.
	Devices []Device
}

// Device is a network interface or an RDMA device that counts.
type Device struct {
	// Backend of the device. It differs from the source's for a flow that has lost an RDMA device: XDP counts
	// the flow on the interface of that device, and RDMA on the other devices.
	Backend flow.Backend
	Name    string
	Mode    Mode
}

// Mode is how a device counts. The mode of a queue pair's device is a [CompletionSource] other than
// [SourceAuto], or "comp_cntr+external" where the device writes into the mirror.
type Mode string

// The modes of XDP, then those of RDMA, then those of reserved words.
const (
	// ModeAuto is the first that works of native, TCX and generic. On a device that makes socket buffers before XDP
	// runs (veth, tun, tap) TCX is the first. No device has it.
	ModeAuto    Mode = "auto"
	ModeNative  Mode = "native"  // XDP in the driver
	ModeGeneric Mode = "generic" // XDP on socket buffers
	ModeTCX     Mode = "tcx"     // TCX: on egress, and on ingress behind XDP
	// ModeDispatcher is XDP, in front of the other components of a libxdp dispatcher. An interface has it by
	// [BesideDispatcher], and not as its configured mode.
	ModeDispatcher Mode = "dispatcher"

	ModeDevX     Mode = "devx"      // a flow table of mlx5, written with DevX commands
	ModeDontTrap Mode = "dont-trap" // a verbs flow whose packets go on to the kernel
	ModeEgress   Mode = "egress"    // a verbs flow on sent packets
	ModeDrop     Mode = "drop"      // a verbs flow that takes the packets, since the flow drops them
	ModeSteal    Mode = "steal"     // a verbs flow that takes the packets, since RDMAConfig.Steal allows it

	// A counter of reserved words has the source "rdma:own/words": the device is the program's own.
	ModeWords          Mode = "words"           // a program has the words
	ModeWordsFree      Mode = "words+free"      // no program has them
	ModeWordsAbandoned Mode = "words+abandoned" // the program ended without giving them back
)

// IsZero reports whether nothing counts.
func (s Source) IsZero() bool { return s.Backend == "" && len(s.Devices) == 0 }

// Equal reports whether s and o are the same source.
func (s Source) Equal(o Source) bool {
	return s.Backend == o.Backend && slices.Equal(s.Devices, o.Devices)
}

// Backends returns the backends that count, each once: two for a flow that has lost an RDMA device.
func (s Source) Backends() []flow.Backend {
	if s.IsZero() {
		return nil
	}
	all := []flow.Backend{s.Backend}
	for _, d := range s.Devices {
		if !slices.Contains(all, d.Backend) {
			all = append(all, d.Backend)
		}
	}
	return all
}

// String returns the source in the form that the mirror shows: "xdp:eth0,eth1/native,generic", "sim" or "none".
func (s Source) String() string {
	if s.IsZero() {
		return "none"
	}
	text := join(s.Backends(), func(b flow.Backend) string { return string(b) })
	if len(s.Devices) == 0 {
		return text
	}
	return text + ":" + s.DeviceNames() + "/" + s.Modes()
}

// DeviceNames returns the names of the devices, separated by commas.
func (s Source) DeviceNames() string { return join(s.Devices, func(d Device) string { return d.Name }) }

// Modes returns the modes of the devices in the same order, separated by commas.
func (s Source) Modes() string {
	return join(s.Devices, func(d Device) string { return string(d.Mode) })
}

func join[T any](list []T, text func(T) string) string {
	words := make([]string, len(list))
	for i, v := range list {
		words[i] = text(v)
	}
	return strings.Join(words, ",")
}
