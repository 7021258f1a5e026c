package dataplane

import (
	"slices"
	"strings"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// Source says who counts a flow or a queue pair now. The zero Source means that nobody does, so the total stands still.
type Source struct {
	// Backend is [flow.XDP], [flow.RDMA] or [flow.Sim].
	Backend flow.Backend
	// Devices that count, RDMA devices first. Sim has none.
	Devices []Device
}

// Device is a network interface or an RDMA device that counts.
type Device struct {
	// Backend of the device. It differs from [Source.Backend] if one of several RDMA devices is lost: then XDP counts
	// the flow on the network interface of the lost device, and RDMA on the others.
	Backend flow.Backend
	Name    string
	Mode    Mode
}

// Mode is how a device counts. For a queue pair it is a [CompletionSource] other than [SourceAuto], or
// "comp_cntr+external" if the device writes directly into the mirror.
type Mode string

// The modes of XDP, of RDMA, and of reserved words.
const (
	// ModeAuto tries native, TCX and generic, in this order. On veth, tun and tap devices it tries TCX first, because
	// they have made socket buffers before XDP runs. Use it in an [Interface]; a [Device] has the mode chosen.
	ModeAuto    Mode = "auto"
	ModeNative  Mode = "native"  // XDP in the driver
	ModeGeneric Mode = "generic" // XDP on socket buffers
	ModeTCX     Mode = "tcx"     // TCX: on egress, and on ingress behind XDP
	// ModeDispatcher is XDP as the first component of a libxdp dispatcher. It cannot be configured for an [Interface];
	// see [BesideDispatcher].
	ModeDispatcher Mode = "dispatcher"

	ModeDevX     Mode = "devx"      // a flow table of mlx5, written with DevX commands
	ModeDontTrap Mode = "dont-trap" // a verbs flow whose packets go on to the kernel
	ModeEgress   Mode = "egress"    // a verbs flow on sent packets
	ModeDrop     Mode = "drop"      // a verbs flow that takes the packets, because the flow drops them
	ModeSteal    Mode = "steal"     // a verbs flow that takes the packets, because RDMAConfig.Steal allows it

	// Reserved words have the source "rdma:own/words", because the device belongs to the other program.
	ModeWords          Mode = "words"           // a program has taken the words
	ModeWordsFree      Mode = "words+free"      // no program has taken them
	ModeWordsAbandoned Mode = "words+abandoned" // the program ended without giving them back
)

// IsZero reports whether nobody counts.
func (s Source) IsZero() bool { return s.Backend == "" && len(s.Devices) == 0 }

// Equal reports whether s and o are the same source.
func (s Source) Equal(o Source) bool {
	return s.Backend == o.Backend && slices.Equal(s.Devices, o.Devices)
}

// Backends returns the backends of all devices, without repetition. There are two after the loss of an RDMA device.
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

// String returns the source as readers see it in the mirror: "xdp:eth0,eth1/native,generic", "sim" or "none".
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

// Modes returns the modes of the devices, in the order of DeviceNames, separated by commas.
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
