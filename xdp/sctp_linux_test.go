package xdp

import (
	"errors"
	"testing"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/probe"
)

// A veth refuses generic mode while SCTP is loaded. The virtual machines of internal/lab/vm show the crash itself.
func TestGenericModeIsRefusedWhereItWouldCrashTheKernel(t *testing.T) {
	w := testWire(t)
	generic := AttachOptions{Mode: ModeGeneric, Ingress: true}

	dp := openTest(t, Options{MaxRules: 64})
	dp.hasSCTP = func() bool { return true }
	err := w.Near.NS.Do(func() error {
		_, err := dp.Attach(w.Near.Name, generic)
		return err
	})
	var unsupported *probe.UnsupportedError
	if !errors.As(err, &unsupported) || unsupported.Feature != "generic XDP" {
		t.Fatalf("%v, want a refusal of generic XDP", err)
	}

	lab.Step(t, unsupported.Fix, "use mode native or tcx for the interface")

	// A hook that counts in another mode stays.
	for _, m := range []Mode{ModeNative, ModeTCX} {
		attach(t, dp, w.Near, AttachOptions{Mode: m, Ingress: true})
		err := w.Near.NS.Do(func() error {
			_, err := dp.Attach(w.Near.Name, generic)
			return err
		})
		if !errors.As(err, &unsupported) || dp.Held() != 1 {
			t.Errorf("from mode %d: %v, %d hooks held; want a refusal, and the hook", m, err, dp.Held())
		}
	}

	dp.hasSCTP = func() bool { return false }
	a := attach(t, dp, w.Near, generic)
	if !a[0].HarmsSCTP {
		t.Errorf("%+v does not say that it harms SCTP once the kernel has it", a[0])
	}

	// A held hook stays: the condition names it.
	dp.hasSCTP = func() bool { return true }
	if a = attach(t, dp, w.Near, generic); a[0].Fresh || !a[0].HarmsSCTP {
		t.Errorf("%+v, want the held hook", a[0])
	}
}

// Neither a wire nor the process behind a tap sends SCTP buffers with segments.
func TestOnlyDevicesOfThisHostHarmSCTP(t *testing.T) {
	for _, tt := range []struct {
		dev  device
		want bool
	}{
		{device{link: "ether", kind: "device"}, false},
		{device{link: "ether", kind: "tuntap"}, false},
		{device{link: "none", kind: "tuntap"}, false},
		{device{link: "loopback", kind: "device"}, true},
		{device{link: "ether", kind: "veth"}, true},
		{device{link: "ether", kind: "bridge"}, true},
		{device{link: "ether", kind: "vlan"}, true},
	} {
		if got := tt.dev.local(); got != tt.want {
			t.Errorf("%+v: %v, want %v", tt.dev, got, tt.want)
		}
	}
}
