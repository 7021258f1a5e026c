package engine

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
	"github.com/flowtally/flowtally/probe"
)

// apply makes the running instance the configuration, as flowtally apply does.
func (h *host) apply(t *testing.T) {
	t.Helper()
	file := h.cfg
	file.Flows = nil
	if _, err := h.e.SetFlows(t.Context(), h.cfg.Flows, dataplane.SetOptions{Config: &file}); err != nil {
		t.Fatal(err)
	}
}

// found looks at the hooks now, in place of in two seconds, and returns a condition if that look raises it.
func (h *host) found(t *testing.T, code dataplane.ConditionCode) (c dataplane.Condition, raised bool) {
	t.Helper()
	x := h.e.backends[0].(*xdp.Backend)
	x.CheckAll()
	all := x.Conditions()
	i := slices.IndexFunc(all, func(c dataplane.Condition) bool { return c.Code == code })
	if i < 0 {
		return c, false
	}
	return all[i], true
}

// probed returns what doctor says about a feature.
func (h *host) probed(t *testing.T, feature string, interfaces ...string) (found probe.Result) {
	t.Helper()
	if err := h.wire.Near.NS.Do(func() error {
		for _, r := range Probe(t.Context(), ProbeOptions{Interfaces: interfaces}) {
			if r.Feature == feature {
				found = r
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

// The mode that the fixes name ends both conditions of an interface that the configuration counts by generic XDP.
func TestFixOfGenericModeEndsBothConditions(t *testing.T) {
	need.TCX(t)
	h := newHost(t, nil, dataplane.Interface{Name: "eth0", Mode: dataplane.ModeGeneric})
	eth0 := h.plug(t, "eth0")
	h.run(t)
	generic := h.condition(t, true, dataplane.CodeXDPGeneric, "eth0")
	sctp := h.condition(t, true, dataplane.CodeXDPGenericSCTP, "eth0")
	for _, c := range []dataplane.Condition{generic, sctp} {
		lab.Step(t, c.Fix, "mode: tcx for eth0")
		lab.Step(t, c.Fix, ", then: flowtally apply")
	}

	h.cfg.Interfaces = []dataplane.Interface{{Name: "eth0", Mode: dataplane.ModeTCX}}
	h.apply(t)
	h.condition(t, false, dataplane.CodeXDPGeneric, "eth0")
	h.condition(t, false, dataplane.CodeXDPGenericSCTP, "eth0")
	h.counted(t, eth0.B)
}

// A bridge has no native XDP. The probe of doctor and the condition name the mode that counts on it.
func TestFixOfAnInterfaceWithoutNativeModeNamesOneThatCounts(t *testing.T) {
	need.TCX(t)
	h := newHost(t, func(c *dataplane.Config) { c.Start = dataplane.StartDegraded },
		dataplane.Interface{Name: "eth0"}, dataplane.Interface{Name: "br0", Mode: dataplane.ModeNative})
	h.plug(t, "eth0")
	if err := h.wire.Near.NS.Do(func() error {
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}})
	}); err != nil {
		t.Fatal(err)
	}
	if r := h.probed(t, "native XDP", "br0"); r.Answer != probe.Inconclusive { // kernels before 6.3 do not say
		lab.Step(t, r.Fix, "use mode auto")
	}

	h.run(t)
	c := h.condition(t, true, dataplane.CodeInterfaceRefused, "br0")
	lab.Step(t, c.Fix, "use mode auto")
	lab.Step(t, c.Fix, "after a change of the configuration: flowtally apply")
	h.cfg.Interfaces = []dataplane.Interface{{Name: "eth0"}, {Name: "br0"}}
	h.apply(t)
	h.condition(t, false, dataplane.CodeInterfaceRefused, "br0")
	h.devices(t, "a", "eth0", "br0")
}

// TestFixesNameTheInstance: a command in a fix acts on the instance that raised the condition.
func TestFixesNameTheInstance(t *testing.T) {
	h := newHost(t, func(c *dataplane.Config) { c.Start, c.Instance = dataplane.StartDegraded, "lb" },
		dataplane.Interface{Name: "eth0"}, dataplane.Interface{Name: "br0", Mode: dataplane.ModeNative})
	h.plug(t, "eth0")
	if err := h.wire.Near.NS.Do(func() error {
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}})
	}); err != nil {
		t.Fatal(err)
	}
	h.run(t)
	c := h.condition(t, true, dataplane.CodeInterfaceRefused, "br0")
	if !strings.HasSuffix(c.Fix, ": flowtally apply --instance lb") {
		t.Errorf("the fix is %q", c.Fix)
	}
}

// After an unmount of the bpffs at its own place, the command of the condition lets the instance pin again.
func TestFixOfPinsAtTheKernelsPlacePinsAgain(t *testing.T) {
	need.Cap(t, "sys_admin") // to mount
	const place = "/sys/fs/bpf"
	h := newHost(t, nil, dataplane.Interface{Name: "eth0"})
	h.plug(t, "eth0")
	h.wire.Near.Do(t, "mount -t bpf -o mode=0700 bpf "+place)
	t.Cleanup(func() { unix.Unmount(place, unix.MNT_DETACH) })
	h.cfg.XDP.PinDir = filepath.Join(place, "flowtally", "fix")
	h.run(t)

	if err := unix.Unmount(place, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	// What lies below is no bpffs, as on a host.
	if err := unix.Mount("tmpfs", place, "tmpfs", 0, "mode=0755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(place, unix.MNT_DETACH) })
	c, lost := h.found(t, dataplane.CodePinsLost)
	if !lost {
		t.Fatal("the pins are gone, and no condition says so")
	}
	missing := h.probed(t, "bpffs")
	if step := lab.Step(t, missing.Fix, "mount -t bpf -o mode=0700 bpf /sys/fs/bpf"); missing.Answer != probe.No || !strings.Contains(c.Fix, step) {
		t.Errorf("doctor says %+v, the condition %q", missing, c.Fix)
	}
	h.wire.Near.Do(t, lab.Step(t, c.Fix, "mount -t bpf -o mode=0700 bpf /sys/fs/bpf"))
	if r := h.probed(t, "bpffs"); r.Answer != probe.Yes {
		t.Errorf("after its fix doctor says %+v", r)
	}
	h.found(t, dataplane.CodePinsLost) // it pins again
	if c, lost := h.found(t, dataplane.CodePinsLost); lost {
		t.Errorf("after its fix: %+v", c)
	}
}

// TCX sees the tags that a device takes out of the frames, so its mode is the fix where the device cannot leave them
// there.
func TestTCXIsTheFixOfADeviceThatKeepsTags(t *testing.T) {
	need.TCX(t)
	h := newHost(t, nil)
	h.cfg.Interfaces = []dataplane.Interface{{Name: h.wire.Near.Name, Mode: dataplane.ModeNative}}
	h.cfg.Flows = []flow.Flow{{Name: "a", Match: match(t, "vlan id 100 udp dport 1001")}}
	tagSent(t, h.wire.Far)
	h.run(t)
	h.condition(t, true, dataplane.CodeVLANOffload, h.wire.Near.Name)

	h.cfg.Interfaces = []dataplane.Interface{{Name: h.wire.Near.Name, Mode: dataplane.ModeTCX}}
	h.apply(t)
	h.condition(t, false, dataplane.CodeVLANOffload, h.wire.Near.Name)
	s, err := h.wire.Far.NewSender([]lab.Stream{{Frames: [][]byte{udpTo(1001, 60)}}}, lab.SenderOptions{Stack: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := errors.Join(s.Run(t.Context(), 100), s.Settle(t.Context())); err != nil {
		t.Fatal(err)
	}
	sent := backend.Pair(s.Sent()[0])
	await(t, reader(t, h.cfg), "a", backend.Pair{Packets: sent.Packets, Bytes: sent.Bytes + 4*sent.Packets})
}
