//go:build vm

package guest

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/xdp"
)

// Verdicts of programs.
const (
	tcxNext = -1
	xdpPass = 2
)

// emptyTCX does nothing with a packet, and emptyXDP neither.
var (
	emptyTCX = &ebpf.ProgramSpec{Name: "empty", Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R0, tcxNext),
		asm.Return(),
	}}
	emptyXDP = &ebpf.ProgramSpec{Name: "empty", Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R0, xdpPass),
		asm.Return(),
	}}
)

// pull is what the programs of flowtally did before they read headers by bpf_skb_load_bytes: it makes up to 512
// bytes of the packet linear, and changes the buffer of the packet in this way.
var pull = &ebpf.ProgramSpec{Name: "pull", Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
	asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), // len
	asm.JLE.Imm(asm.R2, 512, "pull"),
	asm.Mov.Imm(asm.R2, 512),
	asm.FnSkbPullData.Call().WithSymbol("pull"),
	asm.Mov.Imm(asm.R0, tcxNext),
	asm.Return(),
}}

// attachTCX attaches a program to a hook of an end. The returned function detaches it.
func attachTCX(spec *ebpf.ProgramSpec, e *lab.End, at ebpf.AttachType) (detach func() error, err error) {
	p, err := ebpf.NewProgram(spec)
	if err != nil {
		return nil, fmt.Errorf("loading program %s: %w", spec.Name, err)
	}
	defer p.Close() // the link holds it
	var l link.Link
	err = e.NS.Do(func() error {
		l, err = link.AttachTCX(link.TCXOptions{Program: p, Interface: e.Index, Attach: at})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("attaching program %s to %s: %w", spec.Name, e.Name, err)
	}
	return l.Close, nil
}

// attachXDP attaches the empty program to the XDP hook of an end, loaded with flags.
func attachXDP(e *lab.End, as link.XDPAttachFlags, flags uint32) (detach func() error, err error) {
	spec := emptyXDP.Copy()
	spec.Flags = flags
	p, err := ebpf.NewProgram(spec)
	if err != nil {
		return nil, fmt.Errorf("loading program %s: %w", emptyXDP.Name, err)
	}
	defer p.Close() // the link holds it
	var l link.Link
	err = e.NS.Do(func() error {
		l, err = link.AttachXDP(link.XDPOptions{Program: p, Interface: e.Index, Flags: as})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("attaching program %s to %s: %w", emptyXDP.Name, e.Name, err)
	}
	return l.Close, nil
}

// streamPort is the destination port of streams.
const streamPort = 5001

// A tally is a rule set of flowtally that counts the packets of each direction: those of a stream, and the others. It
// does not count what the hosts say to each other by themselves, by ARP and ICMPv6.
type tally struct {
	rules               *xdp.Datapath
	in, out             uint32 // of SCTP, or to the port of the streams
	othersIn, othersOut uint32
}

func newTally(t *testing.T, o xdp.Options) *tally {
	t.Helper()
	o.MaxRules = 64
	rules, err := xdp.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rules.Destroy(); err != nil {
			t.Error(err)
		}
	})
	c := &tally{rules: rules}
	for _, side := range []struct {
		name           string
		stream, others *uint32
		egress         xdp.Flags
	}{{"in", &c.in, &c.othersIn, 0}, {"out", &c.out, &c.othersOut, xdp.FlagEgress}} {
		for _, counter := range []struct {
			id    *uint32
			owner string
		}{{side.stream, side.name}, {side.others, side.name + ", others"}} {
			allocated, err := rules.AllocCounter(counter.owner)
			if err != nil {
				t.Fatal(err)
			}
			*counter.id = allocated.ID
		}
		for i, match := range []struct {
			family xdp.Flags
			proto  uint8
			port   bool
		}{
			{xdp.FlagIPv4, unix.IPPROTO_TCP, true},
			{xdp.FlagIPv6, unix.IPPROTO_TCP, true},
			{xdp.FlagIPv4, unix.IPPROTO_UDP, true},
			{xdp.FlagIPv4, unix.IPPROTO_SCTP, false},
			{xdp.FlagIPv4, 0, false},
			{xdp.FlagIPv6, unix.IPPROTO_TCP, false},
		} {
			r := xdp.Rule{Counter: *side.stream, Order: uint32(i)}
			k, m := &r.Key.Out, &r.Mask.Out
			k.Flags, m.Flags = match.family|side.egress, match.family|xdp.FlagEgress
			if match.proto != 0 {
				k.Proto, m.Proto = match.proto, 0xff
			}
			if match.port {
				k.Flags, m.Flags = k.Flags|xdp.FlagL4, m.Flags|xdp.FlagL4
				k.L4, m.L4 = [4]byte{0, 0, streamPort >> 8, streamPort & 0xff}, [4]byte{0, 0, 255, 255}
			} else if match.proto != unix.IPPROTO_SCTP {
				r.Counter, r.Priority = *side.others, 9
			}
			if err := rules.Add(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	return c
}

// attach takes hooks of an end, from within its namespace.
func (c *tally) attach(e *lab.End, o xdp.AttachOptions) (got []xdp.Attachment, err error) {
	err = e.NS.Do(func() error {
		got, err = c.rules.Attach(e.Name, o)
		return err
	})
	return got, err
}

// must returns the packets that were received and sent, and of both the others.
func (c *tally) must(t *testing.T) [3]xdp.Pair {
	t.Helper()
	var p [4]xdp.Pair
	if err := c.rules.Read([]uint32{c.in, c.out, c.othersIn, c.othersOut}, p[:]); err != nil {
		t.Fatal(err)
	}
	return [3]xdp.Pair{plus(p[0], p[2]), plus(p[1], p[3]), plus(p[2], p[3])}
}

// A kprobe counts the calls of a function of the kernel.
type kprobe struct {
	*testing.T
	function string
}

// tracing is where the kernel's own probes are made.
const tracing = "/sys/kernel/tracing/"

func newKprobe(t *testing.T, function string) *kprobe {
	t.Helper()
	p := &kprobe{t, function}
	p.write("kprobe_events", "p:observe/calls "+function)
	p.write("events/observe/calls/enable", "1")
	t.Cleanup(func() {
		p.write("events/observe/calls/enable", "0")
		p.write("kprobe_events", "-:observe/calls")
	})
	return p
}

func (p *kprobe) write(file, text string) {
	p.Helper()
	f, err := os.OpenFile(tracing+file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		p.Fatal(err)
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Close()); err != nil {
		p.Fatalf("probing %s: %v", p.function, err)
	}
}

// hits returns the calls so far.
func (p *kprobe) hits() string {
	p.Helper()
	text, err := os.ReadFile(tracing + "kprobe_profile") // "calls  HITS  MISSES"
	if err != nil {
		p.Fatal(err)
	}
	return string(text)
}
