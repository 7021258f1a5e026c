package rdma

import (
	"errors"
	"syscall"
	"testing"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/internal/lab"
)

func TestALostDeviceIsOpenedAgainWhenItIsBack(t *testing.T) {
	h := newFakeHost("eth0")
	b := openFake(t, h, "eth0")
	f := placedUDP(t, "f", 1, 0)
	in := mustInstall(t, b, f)
	h.nic(0).set(t, 1, backend.Pair{Packets: 5, Bytes: 500})
	sampledAs(t, b, in[0].ID, backend.Pair{Packets: 5, Bytes: 500})
	if gone := b.Gone(); len(gone) != 0 {
		t.Fatalf("gone: %v", gone)
	}
	dead := h.nic(0)
	dead.mu.Lock() // send the event before any read can fail, because failing reads are a loss of another kind
	dead.fail = syscall.EIO
	dead.events <- nicFatal
	dead.mu.Unlock()
	<-b.Changed()
	if err := b.Gone()["f"]; !errors.Is(err, backend.ErrDeviceLost) {
		t.Errorf("gone: %v, want the device's end", err)
	}
	if err := b.Fits(f.Flow, nil, nil); !errors.Is(err, backend.ErrDeviceLost) {
		t.Errorf("fits: %v", err)
	}
	c := b.Conditions()
	if len(c) != 1 || c[0].Code != "rdma-device-lost" {
		t.Fatalf("conditions %+v", c)
	}
	lab.Step(t, c[0].Fix, "when the device is back, counting on it goes on by itself")
	if err := b.Remove(t.Context(), []backend.Placed{f}); err != nil {
		t.Error(err)
	}
	if got, _ := sampleOf(t, b, in[0].ID); got != (backend.Pair{Packets: 5, Bytes: 500}) {
		t.Errorf("the last value is %+v", got)
	}
	lab.Eventually(t, "the return", func() bool { return b.Fits(f.Flow, nil, nil) == nil })
	if !dead.isClosed || h.opened != 2 {
		t.Errorf("the dead device is closed: %v; %d opened", dead.isClosed, h.opened)
	}
	<-b.Changed()
	if c := b.Conditions(); len(c) != 0 {
		t.Errorf("conditions %+v", c)
	}
	mustInstall(t, b, f)
}

// While a slave leaves its bond, a search may find the device at the bond once. Only a device that stays there is gone.
func TestADeviceAtAnotherInterfaceForAMomentCountsOn(t *testing.T) {
	h := newFakeHost("v1")
	b := openFake(t, h, "v1")
	f := placedUDP(t, "f", 1, 0)
	mustInstall(t, b, f)
	b.stop() // only the test searches from here on
	b.running.Wait()
	here := portInfo{name: "fake0", port: 1, netdev: "v1"}
	atBond := here
	atBond.netdev = "bond7"

	for _, found := range []portInfo{atBond, here, atBond} {
		b.checkDevices([]portInfo{found})
		if err := b.Gone()["f"]; err != nil {
			t.Fatalf("the device is at %s: %v", found.netdev, err)
		}
	}
	b.checkDevices([]portInfo{atBond})
	if err := b.Gone()["f"]; !errors.Is(err, backend.ErrDeviceLost) {
		t.Errorf("gone: %v, want the end of a device that is at another interface for good", err)
	}
}

// Some drivers send no event when a device is removed, so being off the list must be enough.
func TestADeviceThatIsNotListedIsLetGo(t *testing.T) {
	h := newFakeHost("eth0")
	b := openFake(t, h, "eth0")
	f := placedUDP(t, "f", 1, 0)
	mustInstall(t, b, f)
	h.mu.Lock()
	list := h.list
	h.list = nil
	h.mu.Unlock()
	old := h.nic(0)
	<-b.Changed()
	if err := b.Gone()["f"]; !errors.Is(err, backend.ErrDeviceLost) {
		t.Errorf("gone: %v, want the device's end", err)
	}
	if err := b.Remove(t.Context(), []backend.Placed{f}); err != nil {
		t.Error(err)
	}
	lab.Eventually(t, "closing the device", func() bool { old.mu.Lock(); defer old.mu.Unlock(); return old.isClosed })
	h.mu.Lock()
	h.list = list
	h.mu.Unlock()
	lab.Eventually(t, "the return", func() bool { return b.Fits(f.Flow, nil, nil) == nil })
}

func TestAPortThatIsDownLosesItsFlowsUntilItIsUp(t *testing.T) {
	h := newFakeHost("eth0")
	b := openFake(t, h, "eth0")
	f := placedUDP(t, "f", 1, 0)
	in := mustInstall(t, b, f)
	h.nic(0).set(t, 1, backend.Pair{Packets: 5, Bytes: 500})
	h.nic(0).events <- nicPortDown
	<-b.Changed()
	if err := b.Gone()["f"]; !errors.Is(err, errPortDown) {
		t.Errorf("gone: %v, want the port's", err)
	}
	c := b.Conditions()
	if len(c) != 1 || c[0].Code != "rdma-port-down" {
		t.Fatalf("conditions %+v", c)
	}
	lab.Step(t, c[0].Fix, "bring the link up: ip link set … up") // the kernel's event follows
	if err := b.Remove(t.Context(), []backend.Placed{f}); err != nil {
		t.Error(err)
	}
	// The device still works, so Remove can read the slot once more.
	if got, _ := sampleOf(t, b, in[0].ID); got != (backend.Pair{Packets: 5, Bytes: 500}) {
		t.Errorf("the last value is %+v", got)
	}
	h.nic(0).events <- nicPortUp
	<-b.Changed()
	if c := b.Conditions(); len(c) != 0 {
		t.Errorf("conditions %+v", c)
	}
	mustInstall(t, b, f)
	if h.opened != 1 {
		t.Errorf("the device was opened %d times", h.opened)
	}
}

func TestCountersThatCannotBeReadAreGivenUp(t *testing.T) {
	h := newFakeHost("eth0")
	b := openFake(t, h, "eth0")
	f := placedUDP(t, "f", 1, 0)
	in := mustInstall(t, b, f)
	h.nic(0).set(t, 1, backend.Pair{Packets: 5, Bytes: 500})
	sampledAs(t, b, in[0].ID, backend.Pair{Packets: 5, Bytes: 500})
	n := h.nic(0)
	n.mu.Lock()
	n.fail = syscall.EIO
	before := n.commands
	n.mu.Unlock()
	reads := func() int {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.commands - before
	}
	lab.Eventually(t, "a condition", func() bool { c := b.Conditions(); return len(c) == 1 && c[0].Code == "rdma-read-errors" })
	if err, n := b.Gone()["f"], reads(); err != nil && n < giveUp {
		t.Errorf("given up after %d reads: %v", n, err)
	}
	lab.Eventually(t, "giving up", func() bool { return b.Gone()["f"] != nil })
	if err := b.Gone()["f"]; !errors.Is(err, syscall.EIO) {
		t.Errorf("gone: %v, want the reads' error", err)
	}
	if err := b.Fits(f.Flow, nil, nil); !errors.Is(err, syscall.EIO) {
		t.Errorf("fits: %v: the device is trusted again at once", err)
	}
	if got, _ := sampleOf(t, b, in[0].ID); got != (backend.Pair{Packets: 5, Bytes: 500}) {
		t.Errorf("the last value is %+v", got)
	}
	if err := b.Remove(t.Context(), []backend.Placed{f}); err != nil {
		t.Error(err)
	}
}

// A stuck rule in a working device wins over those below it, so nothing is counted there until it is out.
func TestAStuckRuleKeepsFlowsOffTheDeviceUntilItIsOut(t *testing.T) {
	h := newFakeHost("eth0")
	b := openFake(t, h, "eth0")
	top, low := placedUDP(t, "top", 1, 0), placedUDP(t, "low", 2, 1)
	mustInstall(t, b, top, low)
	n := h.nic(0)
	n.mu.Lock()
	n.failClose = syscall.EBUSY
	n.mu.Unlock()
	if err := b.Remove(t.Context(), []backend.Placed{top}); err != nil {
		t.Fatal(err)
	}
	<-b.Changed()
	if err := b.Gone()["low"]; !errors.Is(err, errRuleStuck) || !errors.Is(err, syscall.EBUSY) {
		t.Errorf("gone: %v, want that a rule is stuck", err)
	}
	c := b.Conditions()
	if len(c) != 1 || c[0].Code != "rdma-rule-stuck" {
		t.Fatalf("conditions %+v", c)
	}
	lab.Step(t, c[0].Fix, "counting on the device goes on by itself if the rule can be taken out")
	n.mu.Lock()
	n.failClose = nil
	n.mu.Unlock()
	if err := b.Remove(t.Context(), []backend.Placed{low}); err != nil {
		t.Fatal(err)
	}
	lab.Eventually(t, "the device is open again", func() bool { return b.Fits(low.Flow, nil, nil) == nil })
	if n.mu.Lock(); !n.isClosed || len(n.rules) > 0 {
		t.Errorf("the device was closed: %v, with %d rules", n.isClosed, len(n.rules))
	}
	n.mu.Unlock()
	mustInstall(t, b, low)
}

// stickRule leaves a rule of a removed flow in the only device of h, and returns the flow that still counts there.
func stickRule(t *testing.T, h *fakeHost, b *Backend) (low backend.Placed) {
	t.Helper()
	top, low := placedUDP(t, "top", 1, 0), placedUDP(t, "low", 2, 1)
	mustInstall(t, b, top, low)
	n := h.nic(0)
	n.mu.Lock()
	n.failClose = syscall.EBUSY
	n.mu.Unlock()
	if err := b.Remove(t.Context(), []backend.Placed{top}); err != nil {
		t.Fatal(err)
	}
	return low
}

// A device whose Close finds something busy is still open. The next search closes it, and the device counts again.
func TestADeviceThatWasBusyAtItsCloseIsOpenedAgain(t *testing.T) {
	h := newFakeHost("eth0")
	b := openFake(t, h, "eth0")
	low := stickRule(t, h, b)
	n := h.nic(0)
	n.mu.Lock()
	n.failClose = nil
	n.failEnd = syscall.EBUSY
	n.mu.Unlock()
	if err := b.Remove(t.Context(), []backend.Placed{low}); err != nil {
		t.Fatal(err)
	}
	b.stop() // only the test searches from here on
	b.running.Wait()
	b.searchOnce()
	if err := b.Fits(low.Flow, nil, nil); !errors.Is(err, errRuleStuck) {
		t.Errorf("fits: %v, want that the device is not closed yet", err)
	}

	n.mu.Lock()
	n.failEnd = nil
	n.mu.Unlock()
	b.searchOnce()
	if err := b.Fits(low.Flow, nil, nil); err != nil {
		t.Errorf("the device is closed and opened again, and the flow does not fit: %v", err)
	}
}

// After any other error nobody can close the device again, and the kernel may still have the rule. It has none once the device
// was removed.
func TestADeviceThatCouldNotBeClosedIsOpenedOnceItWasRemoved(t *testing.T) {
	h := newFakeHost("eth0")
	b := openFake(t, h, "eth0")
	low := stickRule(t, h, b)
	n := h.nic(0)
	n.mu.Lock()
	n.failClose = nil
	n.failEnd = syscall.EIO
	n.mu.Unlock()
	if err := b.Remove(t.Context(), []backend.Placed{low}); err != nil {
		t.Fatal(err)
	}
	b.stop() // only the test searches from here on
	b.running.Wait()
	for range 3 {
		b.searchOnce()
	}
	if err := b.Fits(low.Flow, nil, nil); !errors.Is(err, errRuleStuck) {
		t.Errorf("fits: %v, want that a rule may be stuck", err)
	}

	h.mu.Lock()
	list := h.list
	h.list = nil
	h.mu.Unlock()
	b.searchOnce()
	if c := b.Conditions(); len(c) != 1 || c[0].Code != "rdma-device-lost" {
		t.Errorf("conditions %+v, want that the device is lost", c)
	}
	h.mu.Lock()
	h.list = list
	h.mu.Unlock()
	b.searchOnce()
	if err := b.Fits(low.Flow, nil, nil); err != nil {
		t.Errorf("the device is new, and the flow does not fit: %v", err)
	}
}

// A device with a stuck rule can fail as any other, and then it is lost.
func TestADeviceWithAStuckRuleIsLostWhenItFails(t *testing.T) {
	h := newFakeHost("eth0")
	b := openFake(t, h, "eth0")
	low := stickRule(t, h, b)
	<-b.Changed()
	h.nic(0).events <- nicPortUp
	h.nic(0).events <- nicFatal
	lab.Eventually(t, "the device is lost", func() bool { return errors.Is(b.Gone()["low"], backend.ErrDeviceLost) })
	n := h.nic(0)
	n.mu.Lock()
	n.failClose = nil
	n.mu.Unlock()
	if err := b.Remove(t.Context(), []backend.Placed{low}); err != nil {
		t.Fatal(err)
	}
}

// The device of an interface that is not counted on any more is closed once its stuck rule is out.
func TestADeviceThatLeavesWithAStuckRuleIsClosed(t *testing.T) {
	h := newFakeHost("eth0", "eth1")
	b := openFake(t, h, "eth0")
	low := stickRule(t, h, b)
	n := h.nic(0)
	if err := b.SetInterfaces(named([]string{"eth1"})); err != nil {
		t.Fatal(err)
	}
	if err := b.Remove(t.Context(), []backend.Placed{low}); err != nil {
		t.Fatal(err)
	}
	b.stop() // only the test searches from here on
	b.running.Wait()
	b.searchOnce()
	n.mu.Lock()
	n.failClose = nil
	n.mu.Unlock()
	b.searchOnce()
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.isClosed || len(n.rules) > 0 {
		t.Errorf("the device is closed: %v, with %d rules", n.isClosed, len(n.rules))
	}
}

// Flows that count on a lost device are gone. Flows of the other interface count on.
func TestALostDeviceLeavesTheFlowsOfTheOther(t *testing.T) {
	h := newFakeHost("eth0", "eth1")
	b := openFake(t, h, "eth0", "eth1")
	first, second, both := placedUDP(t, "first", 1, 0), placedUDP(t, "second", 2, 1), placedUDP(t, "both", 3, 2)
	first.Interface, second.Interface = "eth0", "eth1"
	in := mustInstall(t, b, first, second, both)
	h.nic(0).events <- nicFatal
	<-b.Changed()
	gone := b.Gone()
	if gone["second"] != nil || !errors.Is(gone["first"], backend.ErrDeviceLost) || !errors.Is(gone["both"], backend.ErrDeviceLost) {
		t.Errorf("gone: %v; want the flows of eth0", gone)
	}
	if err := b.Fits(second.Flow, nil, nil); err != nil {
		t.Errorf("a flow of eth1 does not fit any more: %v", err)
	}
	h.nic(1).set(t, 2, backend.Pair{Packets: 5, Bytes: 500})
	sampledAs(t, b, in[1].ID, backend.Pair{Packets: 5, Bytes: 500})
}
