package selftest

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/internal/lab/schema"
	"github.com/flowtally/flowtally/internal/lab/soft"
	"github.com/flowtally/flowtally/shm"
)

// eswitch is a NIC in switchdev mode, in software: an uplink, and a function whose frames arrive at a representor. A pair of
// veths is the slow path between the two, and a program behind the function is the rule that forwards past the host.
type eswitch struct {
	nic      *soft.NIC
	uplink   *lab.End
	rep      *lab.End
	function *lab.End
}

// newESwitch makes the NIC. The device counts on the uplink, or on the representor; with has its faults.
func newESwitch(t *testing.T, onRep bool, with ibvtest.Env) *eswitch {
	t.Helper()
	need.Root(t)
	need.BPF(t)
	need.TCX(t)
	nic := soft.NewNIC(t, &uverbs)
	near := nic.Wire.Near
	for end, addr := range map[*lab.End]string{near: "192.0.2.1/24", nic.Wire.Far: "192.0.2.2/24"} {
		if err := end.AddAddr(netip.MustParsePrefix(addr)); err != nil {
			t.Fatal(err)
		}
	}
	pair, err := lab.NewPair(near.NS, near.NS, lab.Unique("rep"), lab.Unique("vf"), lab.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pair.Close() })
	if onRep {
		nic.Env.Devices[0].Netdev = pair.A.Name
	}
	nic.Env.Mutant = with.Mutant
	nic.Env.Without = with.Without
	nic.Env.Set(t.Setenv)
	return &eswitch{nic, near, pair.A, pair.B}
}

// forward drops the frames of an EtherType between the function and the representor, in place of a rule of the e-switch that
// forwards them past the host.
func (e *eswitch) forward(t *testing.T, etherType uint16) {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), // data of struct xdp_md
		asm.LoadMem(asm.R3, asm.R1, 4, asm.Word), // data_end
		asm.Mov.Imm(asm.R0, 2),                   // XDP_PASS
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, 14),
		asm.JGT.Reg(asm.R4, asm.R3, "out"),
		asm.LoadMem(asm.R1, asm.R2, 12, asm.Half),
		asm.JNE.Imm(asm.R1, int32(htons(etherType)), "out"),
		asm.Mov.Imm(asm.R0, 1), // XDP_DROP
		asm.Return().WithSymbol("out"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	err = e.rep.NS.Do(func() error {
		l, err := link.AttachXDP(link.XDPOptions{Interface: e.rep.Index, Program: p, Flags: link.XDPGenericMode})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// options of a selftest on the interface that the device counts on.
func (e *eswitch) options() Options {
	o := options(e.nic.Env.Devices[0].Netdev)
	o.RDMA = e.nic.Config.RDMA
	o.Device = e.nic.Device
	o.Switchdev = "its NIC is in switchdev mode"
	o.Function = e.function.Name
	if o.Interface == e.uplink.Name {
		o.Peer = far4
	}
	return o
}

// Each criterion is judged by what the device counts, and the verdict by the criteria. A NIC that counts wrongly fails in the
// criterion that its fault is about.
func TestSwitchdevIsAllowedIfEachCriterionHolds(t *testing.T) {
	const (
		sent, received, to, past = sentByHost + ": ", receivedByHost + ": ", ofFunctionTo + ": ", ofFunctionPast + ": "
	)
	for name, c := range map[string]struct {
		onRep   bool
		mutant  string
		without []string
		rule    uint16 // EtherType of the frames that the e-switch forwards past the host; 0: none
		drops   bool   // the host drops frames before they leave the function
		change  func(*Options)
		verdict string
		want    []string // criteria: verdict, counted frames of sent ones
		because string
	}{
		"uplink": {
			rule: pastEtherType, verdict: Allowed,
			want: []string{sent + "holds, 800 of 800", received + "holds, 400 of 400", to + "holds, 0 of 400", past + "holds, 0 of 400"},
		},
		"representor": {
			onRep: true, rule: pastEtherType, verdict: Allowed,
			want: []string{sent + "holds, 800 of 800", received + "holds, 400 of 400", to + "holds, 400 of 400", past + "holds, 0 of 400"},
		},
		"device that loses sent frames": {
			rule: pastEtherType, mutant: "loses_sent", verdict: NotAllowed,
			want:    []string{sent + "fails, 700 of 800", received + "holds, 400 of 400", to + "holds, 0 of 400", past + "holds, 0 of 400"},
			because: `"sent by the host" fails: egress-tagged: -50 packets; egress: -50 packets`,
		},
		"device that counts what another port gets": {
			rule: pastEtherType, mutant: "counts_every_port", verdict: NotAllowed,
			want:    []string{sent + "holds, 800 of 800", received + "holds, 400 of 400", to + "fails, 800 of 400", past + "fails, 400 of 400"},
			because: `"of a function, to the host" fails: function to host: 0 frames `,
		},
		"no rule": {
			verdict: NotDecided,
			want:    []string{sent + "holds, 800 of 800", received + "holds, 400 of 400", to + "holds, 0 of 400", past + "not tested, 0 of 0"},
			because: " ingress protocol 0x88b6 pref 88 flower skip_sw action mirred egress redirect dev UPLINK",
		},
		"device without flows of sent packets": { // as mlx5_ib is on representors
			onRep: true, rule: pastEtherType, without: []string{"devx", "egress"}, verdict: Allowed,
			want: []string{sent + "left to XDP, 0 of 0", received + "holds, 400 of 400", to + "holds, 400 of 400", past + "holds, 0 of 400"},
		},
		"device without flows of received packets": {
			rule: pastEtherType, without: []string{"devx", "dont_trap"}, verdict: Allowed,
			want: []string{sent + "holds, 400 of 400", received + "left to XDP, 0 of 0", to + "holds, 0 of 400", past + "holds, 0 of 400"},
		},
		"device without flows": {
			rule: pastEtherType, without: []string{"devx", "flows"}, verdict: NotDecided,
			want:    []string{sent + "not tested, 0 of 0", received + "not tested, 0 of 0", to + "not tested, 0 of 0", past + "not tested, 0 of 0"},
			because: "not supported",
		},
		"rule for all frames": {
			rule: EtherType, verdict: NotDecided,
			want:    []string{sent + "holds, 800 of 800", received + "holds, 400 of 400", to + "not tested, 0 of 0", past + "not tested, 0 of 0"},
			because: "no frame has arrived at an interface of this host",
		},
		"frames that do not leave": {
			rule: pastEtherType, drops: true, verdict: NotDecided,
			want:    []string{sent + "holds, 800 of 800", received + "holds, 400 of 400", to + "not tested, 0 of 0", past + "not tested, 0 of 0"},
			because: "the kernel has dropped 50 of the frames before they left",
		},
		"no function": {
			change: func(o *Options) { o.Function = "" }, verdict: NotDecided,
			want:    []string{sent + "holds, 800 of 800", received + "holds, 400 of 400", to + "not tested, 0 of 0", past + "not tested, 0 of 0"},
			because: "--function NAME names an interface",
		},
		"function that is not there": {
			change: func(o *Options) { o.Function = "none0" }, verdict: NotDecided,
			want:    []string{sent + "holds, 800 of 800", received + "holds, 400 of 400", to + "not tested, 0 of 0", past + "not tested, 0 of 0"},
			because: "interface none0: ",
		},
		"no neighbor": {
			rule: pastEtherType, change: func(o *Options) { o.Peer = netip.Addr{} }, verdict: NotDecided,
			want:    []string{sent + "holds, 800 of 800", received + "not tested, 0 of 0", to + "holds, 0 of 400", past + "holds, 0 of 400"},
			because: "--peer ADDR names a neighbor",
		},
		"device that is not there": {
			rule: pastEtherType, change: func(o *Options) { o.RDMA.MLX5 = "/nosuch/libmlx5.so.1"; o.RDMA.Library = "/nosuch/libibverbs.so.1" }, verdict: NotDecided,
			want:    []string{sent + "not tested, 0 of 0", received + "not tested, 0 of 0", to + "not tested, 0 of 0", past + "not tested, 0 of 0"},
			because: "/nosuch/libibverbs.so.1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newESwitch(t, c.onRep, ibvtest.Env{Mutant: c.mutant, Without: c.without})
			if c.rule != 0 {
				e.forward(t, c.rule)
			}
			if c.drops {
				dropShortest(t, e.function)
			}
			o := e.options()
			if c.change != nil {
				c.change(&o)
			}
			rep := runOn(t, e.uplink, o)
			s := rep.Switchdev
			if s == nil || s.Verdict != c.verdict || !strings.Contains(s.Because, c.because) || (s.Because == "") != (c.verdict == Allowed) {
				t.Fatalf("%+v, want verdict %q because of %q", s, c.verdict, c.because)
			}
			for i, got := range s.Criteria {
				if text := got.Name + ": " + got.Verdict + ", " + number(got.Counted) + " of " + number(got.Sent); text != c.want[i] {
					t.Errorf("%s (%s), want %s", text, got.Reason, c.want[i])
				}
			}
			if rep.Exact == (c.verdict == NotAllowed) {
				t.Errorf("exact %t: %+v", rep.Exact, rep.Parts)
			}
			var out bytes.Buffer
			described, err := schema.Read("../../../docs/schema/selftest.json")
			if err := errors.Join(err, format.JSON(&out, rep)); err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(described, out.Bytes()); err != nil {
				t.Error(err)
			}
			var text strings.Builder
			if err := rep.Print(&text); err != nil || !strings.Contains(text.String(), "\nSwitchdev: "+c.verdict+" by this result") {
				t.Errorf("%v\n%s", err, text.String())
			}
			nothingLeft(t, e.uplink)
		})
	}
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }

// Where the device could count received packets only by taking them from the kernel, the test leaves them, whatever the
// configuration says. It attaches no program while it counts.
func TestSwitchdevSelftestTakesNoPacketAndNoHook(t *testing.T) {
	e := newESwitch(t, false, ibvtest.Env{})
	e.nic.Env.Without = []string{"devx", "dont_trap"}
	e.nic.Env.Set(t.Setenv)
	o := e.options()
	o.RDMA.Steal = true
	o.RDMA.Audit = true
	c := runOn(t, e.uplink, o).Switchdev.Criteria
	if c[0].Verdict != Holds || c[1].Verdict != LeftToXDP || !strings.Contains(c[1].Reason, "only by taking the packets away from the kernel") {
		t.Errorf("%+v", c)
	}

	e.nic.Env.Without = nil
	e.nic.Env.Set(t.Setenv)
	o.Peer, o.Function, o.Receive, o.Wait = netip.Addr{}, "", true, 10*time.Millisecond
	ready := false
	o.Ready = func(net.HardwareAddr) {
		ready = true
		if n := programs(t, e.uplink); n != 0 {
			t.Errorf("%d programs are attached while it counts", n)
		}
	}
	if runOn(t, e.uplink, o); !ready {
		t.Error("it did not count")
	}
	nothingLeft(t, e.uplink)
}

// losing is an instance that loses its device before a flow is added.
type losing struct {
	dataplane.Service
	before string // name of the flow
	lose   func(dataplane.Service)
}

func (l losing) AddFlows(ctx context.Context, flows ...flow.Flow) ([]dataplane.Placement, error) {
	if flows[0].Name == l.before {
		l.lose(l.Service)
	}
	return l.Service.AddFlows(ctx, flows...)
}

// A device that is lost amid the test takes no flow any more. That must not look like flows that it leaves to XDP.
func TestLossOfTheDeviceAmidATestDecidesNothing(t *testing.T) {
	for _, before := range []string{"received", "function-to-host-ingress", "function-past-host-ingress"} {
		t.Run(before, func(t *testing.T) {
			e := newESwitch(t, false, ibvtest.Env{})
			control := e.nic.Controlled(t)
			e.nic.Env.Set(t.Setenv)
			e.forward(t, pastEtherType)
			o := e.options()
			o.Receive, o.Wait = true, 10*time.Millisecond
			start := o.Start
			o.Start = func(ctx context.Context, cfg dataplane.Config) (dataplane.Service, error) {
				svc, err := start(ctx, cfg)
				if err != nil {
					return nil, err
				}
				return losing{svc, flowPrefix + before, func(svc dataplane.Service) {
					if err := control.Remove(e.nic.Device); err != nil {
						t.Error(err)
					}
					lab.Eventually(t, "the device is lost", func() bool {
						c, err := svc.Conditions(ctx)
						return err == nil && len(c) > 0
					})
				}}, nil
			}
			if s := runOn(t, e.uplink, o).Switchdev; s.Verdict != NotDecided {
				t.Errorf("%+v", s)
			}
			nothingLeft(t, e.uplink)
		})
	}
}

// The rules end with the process. The mirror stays until the next selftest.
func TestKilledSwitchdevSelftestLeavesNothingOnTheInterface(t *testing.T) {
	e := newESwitch(t, false, ibvtest.Env{})
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), waiting+"="+e.uplink.Name, waitingDevice+"="+e.nic.Device)
	cmd.Stderr = os.Stderr
	if err := e.uplink.NS.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	mirror := shm.DefaultPath("selftest")
	lab.Eventually(t, "the killed selftest counts", func() bool {
		m, err := shm.OpenReader(mirror)
		if err != nil {
			return false
		}
		defer m.Close()
		_, err = load(m, flowPrefix+"received")
		return err == nil
	})
	if err := errors.Join(cmd.Process.Kill(), ignoreExit(cmd.Wait())); err != nil {
		t.Fatal(err)
	}
	if n := programs(t, e.uplink); n != 0 {
		t.Errorf("%d programs are attached", n)
	}
	if _, err := os.Stat(mirror); err != nil {
		t.Fatalf("the killed selftest has left no mirror: the test looks at nothing: %v", err)
	}
	e.forward(t, pastEtherType)
	if rep := runOn(t, e.uplink, e.options()); rep.Switchdev.Verdict != Allowed {
		t.Errorf("%+v", rep.Switchdev)
	}
	nothingLeft(t, e.uplink)
}

// Without the verdict of a NIC in switchdev mode the flag has no meaning.
func TestFunctionIsRefusedOutsideOfSwitchdevMode(t *testing.T) {
	o := Options{Interface: "eth0", Device: "mlx5_0", Function: "eth0v0"}
	if err := o.Validate(); err == nil || !strings.Contains(err.Error(), "--function") {
		t.Errorf("error %v", err)
	}
	o.Switchdev = "it is a representor"
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
	if plan := strings.Join(o.Plan(), "\n"); !strings.Contains(plan, "eth0: it is a representor, where no instance counts by mlx5_0") || strings.Contains(plan, "XDP") {
		t.Errorf("plan:\n%s", plan)
	}
}
