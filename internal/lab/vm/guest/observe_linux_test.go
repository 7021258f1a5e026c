//go:build vm

package guest

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/vm"
	"github.com/flowtally/flowtally/probe"
	"github.com/flowtally/flowtally/xdp"
)

// A scenario is traffic that a program may harm.
type scenario struct {
	name  string
	setup func(*route) // what is set up is undone at the end
	transport
	bytes    int
	from, to string // host of the sender, address of the receiver

	since612 bool   // Linux 6.1 does not have it
	segments string // a function of the kernel that the router has to call, which proves what its buffers are
	big      bool   // buffers of more than 64 KiB have to pass
	esp      bool   // the router sees ESP
	decrypts bool   // the router decrypts a tunnel: TCX and generic XDP see its packets again
	tagged   bool   // a VLAN tag is beside the buffer, where XDP does not see it
	stacked  bool   // the devices top-r0 and top-r1 are on top of those of the router
	overhead int    // bytes that the device on top adds to each packet
	parts    bool   // the packets have no port 5001 in front: fragments, and what a tunnel carries
}

// fraglist is called for each buffer that GRO has made as a list, where it leaves by a device that does not send lists.
const fraglist = "skb_segment_list"

var scenarios = []scenario{
	{name: "sctp, sent", transport: sctp, bytes: 60_000, from: "router", to: addrD0},
	{name: "sctp, sent, segmented by the device", setup: (*route).leaveSCTP, transport: sctp, bytes: 60_000, from: "router", to: addrD0},
	{name: "sctp, local", setup: (*route).leaveSCTP, transport: sctp, bytes: 60_000, from: "sender", to: addrR0},
	{name: "sctp, local, segmented before", transport: sctp, bytes: 60_000, from: "sender", to: addrR0},
	{name: "sctp, forwarded", setup: (*route).leaveSCTPAhead, transport: sctp, bytes: 60_000, from: "sender", to: addrD0},
	{name: "sctp, forwarded, segmented by the device", setup: (*route).leaveSCTP, transport: sctp, bytes: 60_000, from: "sender", to: addrD0},
	{name: "tcp, forwarded", setup: (*route).leaveTCPAhead, transport: tcp, bytes: 300_000, from: "sender", to: addrD0},
	{name: "tcp, merged as a list", setup: (*route).mergeAsList, transport: tcp, bytes: 300_000, from: "sender", to: addrD0, segments: fraglist, since612: true},
	{name: "udp, merged as a list", setup: (*route).mergeAsList, transport: udp, bytes: 300_000, from: "sender", to: addrD0, segments: fraglist},
	{name: "udp, local, merged as a list", setup: (*route).mergeAsList, transport: udp, bytes: 300_000, from: "sender", to: addrR0, segments: fraglist},
	{name: "big tcp, local", setup: (*route).bigTCP, transport: tcp, bytes: 2 << 20, from: "sender", to: addr6R0, big: true},
	{name: "big tcp, sent", setup: (*route).bigTCP, transport: tcp, bytes: 2 << 20, from: "router", to: addr6D0, big: true},
	{name: "fragments", transport: datagrams, bytes: 160_000, from: "sender", to: addrD0, parts: true},
	{name: "esp, tunnels", setup: (*route).espTunnels, transport: tcp, bytes: 100_000, from: "sender", to: addrD0, esp: true, decrypts: true, parts: true},
	{name: "esp, transport, forwarded", setup: (*route).espThrough, transport: tcp, bytes: 100_000, from: "sender", to: addrD0, esp: true, parts: true},
	{name: "esp, transport, local", setup: (*route).espToRouter, transport: tcp, bytes: 100_000, from: "sender", to: addrR0, esp: true, parts: true},
	{name: "vlan", setup: (*route).vlans, transport: tcp, bytes: 100_000, from: "sender", to: addrTopD0, tagged: true, stacked: true, overhead: 4},
	{name: "gre", setup: (*route).gre, transport: tcp, bytes: 100_000, from: "sender", to: addrTopD0, parts: true},
	{name: "ipip", setup: (*route).ipip, transport: tcp, bytes: 100_000, from: "sender", to: addrTopD0, stacked: true, overhead: 14 + 20, parts: true},
	{name: "geneve", setup: (*route).geneve, transport: tcp, bytes: 100_000, from: "sender", to: addrTopD0, stacked: true, overhead: 14 + 20 + 8 + 8, parts: true},
	{name: "bond", setup: (*route).bonds, transport: tcp, bytes: 100_000, from: "sender", to: addrTopD0, stacked: true},
}

// segmentation is what a device may do with buffers, by the names of ethtool.
var segmentation = []string{
	"tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-tcp-ecn-segmentation", "tx-tcp-mangleid-segmentation",
	"tx-gre-segmentation", "tx-gre-csum-segmentation", "tx-ipxip4-segmentation", "tx-ipxip6-segmentation",
	"tx-udp_tnl-segmentation", "tx-udp_tnl-csum-segmentation", "tx-udp-segmentation", "tx-sctp-segmentation", "tx-gso-list",
}

// leave lets an end send buffers of several packets as they are, by these features.
func (r *route) leave(e *lab.End, features ...string) {
	r.Helper()
	r.must(e.SetFeatures(true, features...))
	r.Cleanup(func() { r.must(e.SetFeatures(false, features...)) })
}

func (r *route) leaveSCTPAhead() {
	r.Helper()
	r.leave(r.s0, "tx-sctp-segmentation")
}

func (r *route) leaveSCTP() {
	r.Helper()
	r.leaveSCTPAhead()
	r.leave(r.r1, "tx-sctp-segmentation")
}

func (r *route) leaveTCPAhead() {
	r.Helper()
	r.leave(r.s0, "tx-tcp-segmentation", "tx-tcp6-segmentation")
}

// mergeAsList makes the router merge what it receives as a list of the packets.
func (r *route) mergeAsList() {
	r.Helper()
	r.must(r.r0.SetOffload(true, lab.GRO))
	r.must(r.r0.SetFeatures(true, "rx-gro-list"))
	r.Cleanup(func() {
		r.must(r.r0.SetFeatures(false, "rx-gro-list"))
		r.must(r.r0.SetOffload(false, lab.GRO))
	})
}

// bigTCP makes buffers of up to 185,000 bytes leave the sender and the router. Linux before 7.0 does not forward them
// by a device of the same MTU: it takes the header that it will remove for a part of each segment.
func (r *route) bigTCP() {
	r.Helper()
	for _, e := range []*lab.End{r.s0, r.r1} {
		r.leave(e, "tx-tcp-segmentation", "tx-tcp6-segmentation")
		l := r.device(e.NS, e.Name)
		r.in(e.NS, func() error { return netlink.LinkSetGSOMaxSize(l, 185_000) })
		r.Cleanup(func() { r.in(e.NS, func() error { return netlink.LinkSetGSOMaxSize(l, 65_536) }) })
	}
}

// A mode is what runs on the router's devices: on ingress of r0 and, except for XDP, on egress of r1.
type mode struct {
	name    string
	ingress string // "tcx", "native" or "generic"; "": nothing runs
	counts  bool   // it is flowtally
	attach  func(*route) *tally
	harms   map[string]string // what the kernel does to a scenario because a program of the type is there, an empty one too
}

// Generic XDP makes a buffer of SCTP linear, or copies it into another one for a program that takes frames of several
// buffers (frags). Either no longer has the segments that its header says.
var (
	linearHarms = map[string]string{
		"sctp, forwarded": "the kernel crashes in skb_segment",
	}
	copyHarms = map[string]string{
		"sctp, local":     "the association is aborted, and the kernel warns in skb_trim",
		"sctp, forwarded": "the kernel crashes in skb_segment",
		"sctp, forwarded, segmented by the device": "the association is aborted, and the kernel of the receiver warns in skb_trim",
	}
)

// harm returns what the kernel does to a scenario, "" where it does nothing. Before 6.9 it copied no buffer.
func (m mode) harm(s scenario) string {
	if m.harms != nil && oldest() {
		return linearHarms[s.name]
	}
	return m.harms[s.name]
}

var modes = []mode{
	{name: "nothing", attach: func(*route) *tally { return nil }},
	{name: "empty tcx", ingress: "tcx", attach: (*route).attachEmptyTCX},
	{name: "empty native", ingress: "native", attach: func(r *route) *tally { return r.attachEmptyXDP(link.XDPDriverMode, 0) }},
	{name: "empty generic", ingress: "generic", harms: linearHarms, attach: func(r *route) *tally { return r.attachEmptyXDP(link.XDPGenericMode, 0) }},
	{name: "empty generic with frags", ingress: "generic", harms: copyHarms, attach: func(r *route) *tally {
		return r.attachEmptyXDP(link.XDPGenericMode, unix.BPF_F_XDP_HAS_FRAGS)
	}},
	{name: "tcx", ingress: "tcx", counts: true, attach: func(r *route) *tally { return r.attachTally(xdp.ModeTCX) }},
	{name: "native", ingress: "native", counts: true, attach: func(r *route) *tally { return r.attachTally(xdp.ModeNative) }},
	{name: "generic", ingress: "generic", counts: true, harms: linearHarms, attach: (*route).attachGeneric},
	{name: "dispatcher", ingress: "native", counts: true, attach: (*route).attachDispatcher},
}

func (r *route) attachEmptyTCX() *tally {
	r.Helper()
	for end, at := range map[*lab.End]ebpf.AttachType{r.r0: ebpf.AttachTCXIngress, r.r1: ebpf.AttachTCXEgress} {
		detach, err := attachTCX(emptyTCX, end, at)
		r.must(err)
		r.Cleanup(func() { r.must(detach()) })
	}
	return nil
}

func (r *route) attachEmptyXDP(as link.XDPAttachFlags, flags uint32) *tally {
	r.Helper()
	detach, err := attachXDP(r.r0, as, flags)
	r.must(err)
	r.Cleanup(func() { r.must(detach()) })
	return nil
}

func (r *route) attachTally(m xdp.Mode) *tally {
	r.Helper()
	c := newTally(r.T, xdp.Options{})
	_, err := c.attach(r.r0, xdp.AttachOptions{Mode: m, Ingress: true})
	r.must(err)
	r.attachEgress(c, r.r1)
	return c
}

// attachGeneric counts by generic XDP, which flowtally refuses on a veth while the kernel has SCTP.
func (r *route) attachGeneric() *tally {
	r.Helper()

	refused := newTally(r.T, xdp.Options{})
	_, err := refused.attach(r.r0, xdp.AttachOptions{Mode: xdp.ModeGeneric, Ingress: true})
	var unsupported *probe.UnsupportedError
	if !errors.As(err, &unsupported) {
		r.Fatalf("generic XDP beside SCTP: %v, want that it is refused", err)
	}

	c := newTally(r.T, xdp.Options{})
	_, err = c.attach(r.r0, xdp.AttachOptions{Mode: xdp.ModeGeneric, Ingress: true, GenericBesideSCTP: true})
	r.must(err)
	r.attachEgress(c, r.r1)
	return c
}

// attachEgress counts what an end sends, where the kernel has TCX.
func (r *route) attachEgress(c *tally, e *lab.End) {
	r.Helper()
	if !oldest() {
		_, err := c.attach(e, xdp.AttachOptions{Egress: true})
		r.must(err)
	}
}

// attachDispatcher takes a place in a dispatcher of libxdp with a program of the distribution's xdp-tools.
func (r *route) attachDispatcher() *tally {
	r.Helper()
	objects, err := filepath.Glob("/usr/lib/*/bpf/xdp-dispatcher.o")
	r.must(err)
	r.in(r.router, func() error {
		command(r.T, "xdp-loader", "load", "-m", "native", "-n", "xdp_pass", r.r0.Name, objects[0])
		return nil
	})
	c := newTally(r.T, xdp.Options{PinDir: "/sys/fs/bpf/flowtally-observe"})
	got, err := c.attach(r.r0, xdp.AttachOptions{Ingress: true, Dispatcher: true})
	r.must(err)
	if got[0].Mode != "dispatcher" {
		r.Fatalf("attached as %+v, want in the dispatcher", got[0])
	}
	r.attachEgress(c, r.r1)
	return c
}

// oldest says whether the kernel is 6.1, which has no TCX.
func oldest() bool { return strings.HasPrefix(release(), "6.1.") }

// release is what uname -r says.
func release() string {
	var name unix.Utsname
	unix.Uname(&name)
	return unix.ByteSliceToString(name.Release[:])
}

// long says that this machine runs the long form: `make test-vm` without -short.
func long() bool { return os.Getenv("FLOWTALLY_GUEST_LONG") != "" }

// TestTrafficPassesUnharmedAndIsCounted sends each kind of traffic through a router on which flowtally runs, in each
// mode. What arrives is what was sent, and flowtally's counts are the packets and bytes on the wire as far as the
// documents promise it for the mode. In the long form the same traffic first meets nothing, and an empty program of
// each type: a row that fails there has found a fault of the kernel.
func TestTrafficPassesUnharmedAndIsCounted(t *testing.T) {
	p := newKprobe(t, fraglist)
	log, err := vm.OpenLog()
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, log)
	log.Read()                                                    // the boot's
	only := regexp.MustCompile(os.Getenv("FLOWTALLY_GUEST_ONLY")) // of mode/scenario
	for _, m := range modes {
		var rows []scenario
		for _, s := range scenarios {
			if only.MatchString(m.name+"/"+s.name) && !(s.since612 && oldest()) {
				rows = append(rows, s)
			}
		}
		if len(rows) == 0 || oldest() && m.ingress == "tcx" || !m.counts && !long() {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			r := newRoute(t)
			r.must(r.s0.SetFeatures(false, segmentation...))
			r.must(r.r1.SetFeatures(false, segmentation...))
			c := m.attach(r)
			for _, s := range rows {
				t.Run(s.name, func(t *testing.T) {
					if harm := m.harm(s); harm != "" && os.Getenv("FLOWTALLY_GUEST_HARM") == "" {
						t.Logf("it is not run: %s", harm)
						return
					}
					// All lines are in the host's report. This says which row made them.
					t.Cleanup(func() {
						lines, err := log.Read()
						lines = slices.DeleteFunc(lines, func(l vm.Log) bool { return l.Benign(release()) })
						if err != nil || len(lines) > 0 {
							t.Errorf("%d lines of the kernel's log, %v, of the first: %+v", len(lines), err, lines[:min(len(lines), 4)])
						}
					})
					sub := *r
					sub.T = t
					sub.observe(m, s, c, p)
				})
			}
		})
	}
}

// observe carries the scenario's payload past what the mode has attached, and compares the counts.
func (r *route) observe(m mode, s scenario, c *tally, p *kprobe) {
	r.Helper()
	if s.setup != nil {
		s.setup(r)
	}
	if !m.counts {
		r.carry(s, m, p)
		return
	}
	near, far := r.tap(r.s0, true), r.tap(r.d0, false)
	defer near.Close()
	defer far.Close()
	var top *tally
	if s.stacked {
		top = r.attachTop(m)
	}
	before := c.must(r.T)
	r.carry(s, m, p)
	isShort := func() bool { // a slow sender fills no buffer above 64 KB
		r.must(near.read())
		r.must(far.read())
		return s.big && (m.ingress != "native" || s.from == "router") && max(near.longest, far.longest) <= 65_536
	}
	for tries := 1; isShort() && tries < 20; tries++ {
		r.carry(s, m, p)
	}

	var claims []claim
	holds := func() bool {
		r.must(near.read())
		r.must(far.read())
		got, want := c.must(r.T), s.want(m, near, far)
		claims = []claim{{"in", minus(got[0], before[0]), want[0]}, {"out", minus(got[1], before[1]), want[1]}}
		if !s.parts {
			claims = append(claims, claim{"others", minus(got[2], before[2]), xdp.Pair{}})
		}
		if s.to == addrD0 && s.from == "sender" && !s.decrypts { // the tap takes buffers apart as the kernel does
			claims = append(claims, claim{"tap of the sender", near.wire, far.wire})
		}
		if top != nil {
			got := top.must(r.T)
			in := far.wire
			if m.ingress == "generic" {
				in = near.buffers
			}
			claims = append(claims, claim{"in, on top", got[0], shorter(in, s.overhead)})
			if !oldest() {
				claims = append(claims, claim{"out, on top", got[1], shorter(far.wire, s.overhead)})
			}
		}
		return !slices.ContainsFunc(claims, claim.broken)
	}
	for deadline := time.Now().Add(10 * time.Second); !holds() && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
	r.Logf("sent as %v of up to %d bytes, on the wire %v of up to %d", near.buffers, near.longest, far.wire, far.longest)
	for _, claim := range claims {
		if claim.broken() {
			r.Errorf("%s: counted %v, want %v", claim.name, claim.got, claim.want)
		}
	}
	if isShort() {
		r.Errorf("the longest buffer has %d bytes: the test shows nothing", max(near.longest, far.longest))
	}
}

// A claim is a count, and what it has to be.
type claim struct {
	name      string
	got, want xdp.Pair
}

func (c claim) broken() bool { return c.got != c.want }

func (r *route) tap(e *lab.End, leaving bool) *tap {
	r.Helper()
	p, err := newTap(e, leaving)
	r.must(err)
	return p
}

// carry sends the payload, and fails unless it arrives whole, and by the function of the kernel that the scenario names.
func (r *route) carry(s scenario, m mode, p *kprobe) {
	r.Helper()
	from, to := r.sender, r.receiver
	if s.from == "router" {
		from = r.router
	}
	if s.local() {
		to = r.router
	}
	hits := p.hits()
	r.must(s.send(from, to, s.to, streamPort, s.bytes))
	if s.segments != "" && m.ingress != "generic" && p.hits() == hits { // the kernel merges nothing in front of generic XDP
		r.Errorf("the kernel did not call %s: the test shows nothing", s.segments)
	}
}

// attachTop counts on the devices on top, where the mode can: XDP of a driver is on one of two stacked devices alone.
func (r *route) attachTop(m mode) *tally {
	r.Helper()
	as, ok := map[string]xdp.Mode{"tcx": xdp.ModeTCX, "generic": xdp.ModeGeneric}[m.ingress]
	if !ok {
		return nil
	}
	top := newTally(r.T, xdp.Options{})
	_, err := top.attach(&lab.End{NS: r.router, Name: "top-r0"}, xdp.AttachOptions{Mode: as, Ingress: true, GenericBesideSCTP: true})
	r.must(err)
	r.attachEgress(top, &lab.End{NS: r.router, Name: "top-r1"})
	return top
}

// local says whether the router is the receiver.
func (s scenario) local() bool { return s.to == addrR0 || s.to == addr6R0 }

// want is what flowtally counts in and out, as docs/operating.md says for the mode.
func (s scenario) want(m mode, near, far *tap) (w [2]xdp.Pair) {
	wire := far.wire
	if s.esp {
		wire = far.esp
	}
	if !s.local() && !oldest() {
		w[1] = wire
	}
	switch {
	case s.from == "router":
		return w
	case m.ingress == "generic": // segments that were merged before count as one packet
		w[0] = near.buffers
	case !s.local():
		w[0] = wire
	default:
		w[0] = near.wire
	}
	if s.tagged && m.ingress != "tcx" {
		w[0] = shorter(w[0], 4)
	}
	if s.decrypts && m.ingress != "native" {
		w[0] = plus(w[0], minus(far.wire, far.esp))
	}
	return w
}
