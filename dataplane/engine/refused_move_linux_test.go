package engine

import (
	"slices"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/lab"
)

// A flow loses its device while a program of another owner holds the hook of its interface. No backend counts the
// flow there until the hook is free or the device is back: that is a discontinuity, beside the discontinuity of the
// device's loss. With two devices the other device counts on meanwhile. A process that ends meanwhile leaves the
// discontinuity to the next one.
func TestADeviceThatIsLostWhileItsHookIsTakenIsADiscontinuity(t *testing.T) {
	for _, c := range []struct {
		name                   string
		two, returns, restarts bool // two devices; the device returns before the hook is free, while no process runs
	}{
		{"one device", false, false, false}, {"one device that returns", false, true, false},
		{"two devices", true, false, false}, {"two devices of which one returns", true, true, false},
		{"one device that returns before the next process", false, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b *softBench
			if c.two {
				b = newTwoNICs(t).softBench
			} else {
				b = newSoftBench(t)
			}
			b.Config.Flows = []flow.Flow{{Name: "a", Match: match(t, "ipv4 udp dport 1001")}}
			b.Config.Start, b.Config.XDP.Beside = dataplane.StartDegraded, []dataplane.Beside{dataplane.BesideRefuse}
			b.Config.XDP.KeepPins = c.restarts
			b.run(t)
			var total backend.Pair
			send := func(n int, counted bool) {
				t.Helper()
				b.pass(t, flow.Ingress, slices.Repeat([][]byte{udpTo(1001, 60)}, n))
				if counted {
					total = backend.Add(total, backend.Pair{Packets: uint64(n), Bytes: uint64(n) * 60})
				}
				lab.Eventually(t, "the total", func() bool { return b.total(t, "a") == total })
			}
			discontinuities := func(n uint64) {
				t.Helper()
				lab.Eventually(t, "the discontinuity", func() bool { return discontinuitiesOf(b.e, "a") >= n })
				if got := discontinuitiesOf(b.e, "a"); got != n {
					t.Errorf("%d discontinuities, want %d", got, n)
				}
			}
			send(10, true)
			foreign := occupy(t, b.Wire.Near)
			if err := b.control.Remove(b.Device); err != nil {
				t.Fatal(err)
			}
			awaitCondition(t, b.e, "interface-refused", b.Wire.Near.Name, true)
			discontinuities(1)
			send(7, false)
			if c.restarts {
				if err := b.e.Close(); err != nil {
					t.Fatal(err)
				}
				b.Config.XDP.KeepPins = false
			}
			if c.returns {
				if err := b.control.Return(b.Device); err != nil {
					t.Fatal(err)
				}
				if c.restarts { // a process that starts before the return ends a gap of its own
					listed := b.listing(t)
					lab.Eventually(t, "the device in the list", func() bool { return listed() == 1 })
					b.run(t)
				}
				lab.Eventually(t, "the device's return", func() bool {
					return slices.ContainsFunc(b.placementOf(t, "a").Source.Devices, func(d dataplane.Device) bool { return d.Name == b.Device })
				})
			} else if err := foreign.Close(); err != nil {
				t.Fatal(err)
			}
			awaitCondition(t, b.e, "interface-refused", b.Wire.Near.Name, false)
			send(5, true)
			discontinuities(2)
		})
	}
}
