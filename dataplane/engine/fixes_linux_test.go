package engine

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/xdp"
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

// TestFixOfGenericMode: the mode that the fixes name ends both conditions of an interface that the configuration counts by
// generic XDP.
func TestFixOfGenericMode(t *testing.T) {
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

// TestFixOfAnInterfaceWithoutNativeMode: a bridge has no native XDP. The probe of doctor and the condition name the mode
// that counts on it.
func TestFixOfAnInterfaceWithoutNativeMode(t *testing.T) {
	need.TCX(t)
	h := newHost(t, func(c *dataplane.Config) { c.Start = dataplane.StartDegraded },
		dataplane.Interface{Name: "eth0"}, dataplane.Interface{Name: "br0", Mode: dataplane.ModeNative})
	h.plug(t, "eth0")
	if err := h.wire.Near.NS.Do(func() error {
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}})
	}); err != nil {
		t.Fatal(err)
	}
	if err := h.wire.Near.NS.Do(func() error {
		for _, r := range Probe(t.Context(), ProbeOptions{Interfaces: []string{"br0"}}) {
			if r.Feature == "native XDP" && r.Answer == probe.No {
				lab.Step(t, r.Fix, "use mode auto")
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
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

// TestFixOfPinsAtTheKernelsPlace: after an unmount of the bpffs at its own place, the command of the condition lets the
// instance pin again.
func TestFixOfPinsAtTheKernelsPlace(t *testing.T) {
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
	h.wire.Near.Do(t, lab.Step(t, c.Fix, "mount -t bpf -o mode=0700 bpf /sys/fs/bpf"))
	h.found(t, dataplane.CodePinsLost) // it pins again
	if c, lost := h.found(t, dataplane.CodePinsLost); lost {
		t.Errorf("after its fix: %+v", c)
	}
}
