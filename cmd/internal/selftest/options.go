package selftest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/flowtally/flowtally/dataplane"
)

// flowPrefix begins the name of each flow of a selftest.
const flowPrefix = "selftest/"

// EtherTypes of the frames: those that IEEE 802 reserves for local experiments.
const (
	EtherType = 0x88b5
	// pastEtherType is that of the frames that a rule of the e-switch forwards past the host.
	pastEtherType = 0x88b6
)

// Options of a selftest.
type Options struct {
	// Instance names the temporary instance, its mirror and its pins. The instance of the queue pairs gets the suffix
	// "-rdma". Empty means "selftest".
	Instance  string
	Interface string
	Peer      netip.Addr    // a neighbor; zero: none
	Send      bool          // send the frames to Peer, which runs a selftest with Receive
	Receive   bool          // count the frames of a selftest with Send
	Count     int           // of frames, and of echo requests. 0 means 1000
	Wait      time.Duration // with Receive: for the first frame. 0 means 1 min
	// Quiet is how long a count must stay the same to be final. 0 means 1.5 s, because a NIC's counters may lag by a
	// second.
	Quiet    time.Duration
	Mode     dataplane.Mode // of the temporary instance's XDP hook
	RDMA     dataplane.RDMAConfig
	Device   string // an RDMA device; "": none
	GIDIndex *int   // nil: the row that Suggest returns
	// Switchdev is how Interface belongs to a NIC in switchdev mode, as engine.Switchdev returns it. If it is not empty,
	// Device counts on Interface, and the report has a verdict. Start must allow that by engine.Options.Switchdev.
	Switchdev string
	Function  string // another interface of this NIC, of a virtual function, which sends frames; "": none
	// Suggest returns the type and the GID index of a device's queue pairs, or false if the device does not tell. Nil:
	// type rc and row 0.
	Suggest func(rdma dataplane.RDMAConfig, device string) (dataplane.QueuePair, bool)
	// Start starts an instance in this process.
	Start func(ctx context.Context, cfg dataplane.Config) (dataplane.Service, error)
	// Running connects to the running instance. Nil: do not look for one.
	Running func(ctx context.Context) (dataplane.Service, error)
	// Ready is called when a selftest with Receive begins to count. May be nil.
	Ready func(mac net.HardwareAddr)
}

func (o *Options) defaults() {
	o.Instance = cmp.Or(o.Instance, "selftest")
	o.Count = cmp.Or(o.Count, 1000)
	o.Wait = cmp.Or(o.Wait, time.Minute)
	o.Quiet = cmp.Or(o.Quiet, 1500*time.Millisecond)
	o.Mode = cmp.Or(o.Mode, dataplane.ModeAuto)
}

// Validate returns the mistakes in the options.
func (o *Options) Validate() error {
	var errs []error
	if o.Interface == "" && o.Device == "" {
		errs = append(errs, errors.New("--interface NAME names the interface to test"))
	}
	if o.Interface == "" && (o.Peer.IsValid() || o.Send || o.Receive) {
		errs = append(errs, errors.New("--peer, --send and --receive need --interface NAME"))
	}
	if o.Send && !o.Peer.IsValid() {
		errs = append(errs, errors.New("--send needs --peer ADDR, the other host's address on this link"))
	}
	if o.Function != "" && (o.Switchdev == "" || o.Function == o.Interface) {
		errs = append(errs, errors.New("--function NAME is another interface of the NIC, and needs --rdma-device of this NIC and --interface NAME in switchdev mode"))
	}
	if o.Count < 0 || o.Count > 1_000_000 {
		errs = append(errs, fmt.Errorf("--count %d: 1 to 1000000", o.Count))
	}
	return errors.Join(errs...)
}

// Plan returns what a selftest will do on this host, one action per string.
func (o Options) Plan() (plan []string) {
	o.defaults()
	if o.Interface != "" {
		plan = append(plan, o.planCounting())
		to := "to its own address, which a switch does not forward"
		if o.Send {
			to = fmt.Sprintf("to %s", o.Peer)
		}
		plan = append(plan, fmt.Sprintf("%s: send %d frames of EtherType %#04x and %d more with a priority tag (VLAN 0), of 60 to 1016 bytes, %s", o.Interface, o.Count, EtherType, o.Count, to))
	}
	if o.Peer.IsValid() {
		plan = append(plan, fmt.Sprintf("%s: send %d echo requests of 106 to 798 bytes to %s, and count its replies", o.Interface, o.Count, o.Peer))
	}
	if o.Receive {
		plan = append(plan, fmt.Sprintf("%s: wait up to %s for the frames of a selftest --send on another host", o.Interface, o.Wait))
	}
	if o.Function != "" {
		plan = append(plan, fmt.Sprintf("%s: send %d frames of EtherType %#04x and %d of EtherType %#04x to its own address", o.Function, o.Count, EtherType, o.Count, pastEtherType))
	}
	if o.Device != "" {
		plan = append(plan, fmt.Sprintf("%s: make two queue pairs, connect them with one another, and send %d messages between them", o.Device, o.Count))
	}
	return plan
}

// planCounting returns what counts on the interface.
func (o *Options) planCounting() string {
	if o.Switchdev != "" {
		return fmt.Sprintf("%s: %s, where no instance counts by %s. Count by it until the test ends, only the packets of the test, which the kernel gets as before. No program is attached", o.Interface, o.Switchdev, o.Device)
	}
	return fmt.Sprintf("%s: attach the counting programs, XDP (%s) and TCX egress, until the test ends; some drivers restart their queues for XDP, and lose packets meanwhile. Where the running instance counts on %s, add flows to it instead: the packets of the test count there, and not on its other flows", o.Interface, o.Mode, o.Interface)
}
