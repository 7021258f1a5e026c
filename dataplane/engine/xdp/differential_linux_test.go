package xdp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/seed"
	"github.com/flowtally/flowtally/internal/lab/times"
	"github.com/flowtally/flowtally/internal/oracle"
	"github.com/flowtally/flowtally/internal/oracle/gen"
	"github.com/flowtally/flowtally/xdp"
)

// TestXDPCountsWhatTheLinearMatcherNames runs the attached programs in the kernel (BPF_PROG_TEST_RUN) and compares them with the
// oracle, over random sets of flows, and random and broken packets.
func TestXDPCountsWhatTheLinearMatcherNames(t *testing.T) {
	need.BPF(t)
	need.Netns(t)
	t.Run("ingress", func(t *testing.T) {
		differ{dir: flow.Ingress, mode: xdp.ModeNative}.run(t, times.Brief(150, 60))
	})
	t.Run("ingress in several buffers", func(t *testing.T) { // only the place of the headers differs
		differ{dir: flow.Ingress, mode: xdp.ModeNative, cut: true}.run(t, times.Brief(100, 60))
	})
	t.Run("egress", func(t *testing.T) {
		need.TCX(t)
		differ{dir: flow.Egress}.run(t, times.Brief(150, 60))
	})
}

// The frames of some devices begin with IP. Programs must count them as well.
func TestXDPCountsWithoutEthernet(t *testing.T) {
	need.BPF(t)
	need.Netns(t)
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		need.Missing(t, "tun", err.Error())
	}
	differ{dir: flow.Ingress, layer3: true}.run(t, times.Brief(100, 60)) // only the first step of the parser differs
}

// copied is how many bytes of a frame in several buffers a program copies at most: FT_COPIED in xdp/bpf/copy.h.
const copied = 512

// run compares a number of sets of flows.
func (d differ) run(t *testing.T, sets int) {
	if v, err := strconv.Atoi(os.Getenv("FLOWTALLY_SETS")); err == nil {
		sets = v
	}
	if os.Getenv("FLOWTALLY_STRESS") != "" {
		sets = 5000
	}
	const packets = 100
	rng := rand.New(rand.NewPCG(seed.Uint64(t), 0))
	wire, err := lab.NewWire(lab.WireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer wire.Close()
	if d.layer3 {
		tun, err := lab.NewTun(wire.Near.NS, lab.Unique("tun"), lab.TunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer tun.Close()
		wire.Near.Name, wire.Near.Index = tun.Name, tun.Index
	}
	err = wire.Near.NS.Do(func() error { return d.open(t, wire.Near.Name, wire.Near.Index) })
	if err != nil {
		t.Fatal(err)
	}
	defer d.rules.Destroy()
	hits := 0
	for range sets {
		err := wire.Near.NS.Do(func() error { return d.install(gen.Flows(rng, 1+rng.IntN(40))) })
		if err != nil {
			t.Fatal(err)
		}
		matcher := oracle.New(d.flows)
		for range packets {
			frame := gen.Packet(rng, d.flows)
			if d.layer3 {
				frame = frame[14:]
			}
			if len(frame) < 14 {
				continue // BPF_PROG_TEST_RUN refuses frames that are shorter than any driver's
			}
			if d.cut && len(frame) > copied {
				continue // the oracle would see headers that the program does not copy
			}
			want, ok := matcher.Match(oracle.Packet{Frame: frame, Layer3: d.layer3, Direction: d.dir, Interface: wire.Near.Name})
			if !ok {
				want = -1
			} else {
				hits++
			}
			first := len(frame)
			if d.cut {
				first = min(first, 14+rng.IntN(60))
			}
			d.try(t, frame, first, want)
		}
	}
	t.Logf("%d sets of flows, %d rules at most, %d packets, %d of them hit, %d refused by the test run; %d sets were cut to the limit of masks; at most %d instructions verified",
		sets, d.most, sets*packets, hits, d.refused, d.halved, d.insns)
	if hits < sets*packets/8 && !d.layer3 || hits < sets*packets/16 {
		t.Errorf("only %d packets hit a flow: the test looks at little", hits)
	}
}

// differ compares the programs with the oracle. It installs one set of flows after the other in the same tables, so these also
// see rules come and go.
type differ struct {
	dir      flow.Direction
	mode     xdp.Mode // of ingress
	layer3   bool     // on a device whose frames begin with IP
	cut      bool     // each frame is in several buffers, and its headers end anywhere in them
	rules    *xdp.Datapath
	ifname   string
	ifindex  int
	program  *ebpf.Program // the attached one
	flows    []flow.Flow
	counters []uint32
	old      []xdp.Rule
	before   []xdp.Pair
	most     int
	refused  int
	insns    uint32 // the most instructions that the verifier has processed for a program
	halved   int    // sets cut to the limit of masks
}

func (d *differ) open(t *testing.T, ifname string, ifindex int) (err error) {
	d.ifname, d.ifindex = ifname, ifindex
	if d.rules, err = xdp.Open(xdp.Options{MaxRules: 8192}); err != nil {
		return err
	}
	mode := d.mode
	if d.layer3 {
		mode = xdp.ModeGeneric
	}
	_, err = d.rules.Attach(ifname, xdp.AttachOptions{Mode: mode, Ingress: d.dir == flow.Ingress, Egress: d.dir == flow.Egress})
	return err
}

// install replaces the flows. If the tables cannot take all of their masks, it installs the first half, and so on.
func (d *differ) install(flows []flow.Flow) error {
	if len(d.old) > 0 {
		if err := d.rules.Remove(d.old...); err != nil {
			return err
		}
		for _, c := range d.counters {
			if err := d.rules.FreeCounter(c); err != nil {
				return err
			}
		}
	}
	d.old, d.counters, d.flows = nil, nil, nil
	for _, f := range flows {
		c, err := d.rules.AllocCounter(f.Name)
		if err != nil {
			return err
		}
		d.counters = append(d.counters, c.ID)
	}
	for {
		d.flows = flows
		var rules []xdp.Rule
		for i, f := range flows {
			r, err := compile(backend.Placed{Flow: f, Order: uint32(i)}, d.counters[i], d.rules.Port)
			if err != nil {
				return err
			}
			rules = append(rules, r...)
		}
		err := d.rules.Add(rules...)
		if err == nil {
			d.old = rules
			break
		}
		if !errors.Is(err, xdp.ErrFull) {
			return err
		}
		d.halved++
		flows = flows[:len(flows)/2]
	}
	d.most, d.insns = max(d.most, len(d.old)), max(d.insns, d.rules.Stats().Insns)
	d.before = make([]xdp.Pair, len(d.counters))
	return errors.Join(d.rules.Read(d.counters, d.before), d.attached())
}

// attached opens the program that is attached now. A new mask may have loaded another one.
func (d *differ) attached() error {
	if d.program != nil {
		d.program.Close()
	}
	id, err := d.attachedID()
	if err != nil {
		return err
	}
	d.program, err = ebpf.NewProgramFromID(id)
	return err
}

func (d *differ) attachedID() (ebpf.ProgramID, error) {
	if d.dir == flow.Ingress && d.mode != xdp.ModeTCX {
		l, err := netlink.LinkByIndex(d.ifindex)
		if err != nil {
			return 0, err
		}
		return ebpf.ProgramID(l.Attrs().Xdp.ProgId), nil
	}
	hook := ebpf.AttachTCXEgress
	if d.dir == flow.Ingress {
		hook = ebpf.AttachTCXIngress
	}
	q, err := link.QueryPrograms(link.QueryOptions{Target: d.ifindex, Attach: hook})
	if err != nil {
		return 0, err
	}
	return q.Programs[0].ID, nil
}

// From linux/bpf.h: the verdicts, and the sizes of the contexts.
const (
	sizeofSkBuff     = 192
	sizeofXDP        = 24
	xdpDrop, xdpPass = 1, 2
	tcxNext, tcxDrop = -1, 2
)

// try runs a frame with its first bytes in the first buffer, and compares the counters and the verdict. The program must not
// change the frame.
func (d *differ) try(t *testing.T, frame []byte, first, want int) {
	t.Helper()
	opts := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Repeat: 1}
	if d.dir == flow.Egress {
		// With a context, though all zero, the kernel sets wire_len as dev_queue_xmit does.
		opts.Context = make([]byte, sizeofSkBuff)
	} else if first < len(frame) {
		opts.Context = make([]byte, sizeofXDP)
		binary.NativeEndian.PutUint32(opts.Context.([]byte)[4:], uint32(first)) // data_end
	}
	verdict, err := d.program.Run(opts)
	if errors.Is(err, unix.EINVAL) && d.cut {
		need.Missing(t, "test runs of frames in several buffers", "Linux before 6.18 fills the first buffer")
	}
	if errors.Is(err, unix.EINVAL) && d.dir == flow.Egress && len(frame) < 54 {
		d.refused++ // the test run of socket buffers wants the IP header that the EtherType promises
		return
	}
	if err != nil {
		t.Fatalf("running a frame of %d bytes: %v", len(frame), err)
	}
	if !bytes.Equal(opts.DataOut, frame) {
		t.Fatalf("%s frame %x\n left the program as %x", d.dir, frame, opts.DataOut)
	}
	after := make([]xdp.Pair, len(d.counters))
	if err := d.rules.Read(d.counters, after); err != nil {
		t.Fatal(err)
	}
	for i := range after {
		var p xdp.Pair
		if i == want {
			p = xdp.Pair{Packets: 1, Bytes: uint64(len(frame))}
		}
		if got := (xdp.Pair{Packets: after[i].Packets - d.before[i].Packets, Bytes: after[i].Bytes - d.before[i].Bytes}); got != p {
			f := d.flows[i]
			t.Errorf("%s frame %x, %d bytes in its first buffer\n flow %d (%s, priority %d): counted %+v, want %+v", d.dir, frame, first, i, f.Match, f.Priority, got, p)
			if want >= 0 {
				t.Errorf("the linear matcher names flow %d (%s, priority %d)", want, d.flows[want].Match, d.flows[want].Priority)
			}
			t.FailNow()
		}
	}
	d.before = after
	pass, drop := xdpPass, xdpDrop
	if d.dir == flow.Egress {
		pass, drop = tcxNext, tcxDrop
	}
	if want >= 0 && d.flows[want].Action == flow.Drop {
		pass = drop
	}
	if int32(verdict) != int32(pass) {
		t.Fatalf("%s frame %x: verdict %d, want %d", d.dir, frame, int32(verdict), pass)
	}
}
