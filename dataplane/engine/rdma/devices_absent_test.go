package rdma

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/probe"
)

// changes waits for a signal of Changed.
func changes(t *testing.T, b *Backend) {
	t.Helper()
	select {
	case <-b.Changed():
	case <-time.After(20 * time.Second):
		t.Fatal("nothing changes")
	}
}

// plug adds a device of an interface to the list.
func (h *fakeHost) plug(name, netdev string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, portInfo{name: name, port: 1, netdev: netdev})
}

// A host may load the driver after the start. The device is opened then, as a lost one that returns.
func TestADeviceThatComesLaterIsOpened(t *testing.T) {
	h := newFakeHost()
	b := openFake(t, h, "eth0")
	f := placedUDP(t, "f", 1, 0)
	if err := b.Absent(); !errors.Is(err, backend.ErrNoDevice) || !errors.Is(err, probe.ErrNotSupported) {
		t.Errorf("absent: %v, want that there is no device", err)
	}
	if err := b.Fits(f.Flow, nil, nil); !errors.Is(err, backend.ErrNoDevice) {
		t.Errorf("fits: %v, want that there is no device", err)
	}
	if c := b.Conditions(); len(c) != 0 {
		t.Errorf("conditions %+v of a host like most", c)
	}
	h.plug("fake0", "eth0")
	changes(t, b)
	if err := b.Absent(); err != nil {
		t.Errorf("absent: %v", err)
	}
	in := mustInstall(t, b, f)
	h.nic(0).set(t, 1, backend.Pair{Packets: 5, Bytes: 500})
	sampledAs(t, b, in[0].ID, backend.Pair{Packets: 5, Bytes: 500})
}

// A flow on both interfaces must not count on one of them alone.
func TestAFlowOfTwoDevicesWaitsForTheSecond(t *testing.T) {
	h := newFakeHost("eth0")
	b := openFake(t, h, "eth0", "eth1")
	if err := b.Absent(); err != nil {
		t.Errorf("absent: %v, though one of the devices is there", err)
	}
	f := placedUDP(t, "f", 1, 0)
	if err := b.Fits(f.Flow, nil, nil); !errors.Is(err, backend.ErrNoDevice) {
		t.Errorf("fits: %v, want that eth1 has no device", err)
	}
	h.plug("fake1", "eth1")
	changes(t, b)
	if got := mustInstall(t, b, f)[0].Source.DeviceNames(); got != "fake0,fake1" {
		t.Errorf("counted by %q", got)
	}
}

// reluctant is a host whose devices cannot be opened while no is set.
type reluctant struct {
	*fakeHost
	mu sync.Mutex
	no error
}

func (h *reluctant) allow() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.no = nil
}

func (h *reluctant) open(i portInfo) (nic, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.no != nil {
		return nil, h.no
	}
	return h.fakeHost.open(i)
}

// Opening a device tries rules out, so a refused device is only tried once in a while, and when it was away meanwhile. Absent and
// Fits give the reason all the time.
func TestARefusedDeviceIsTriedAgainAfterAWhileOrItsReturn(t *testing.T) {
	h := &reluctant{fakeHost: newFakeHost(), no: syscall.EACCES}
	clock := int64(1)
	o := Options{Interfaces: []dataplane.Interface{{Name: "eth0"}}, Logger: slog.New(slog.DiscardHandler)}
	var log bytes.Buffer
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	b, err := open(t.Context(), o, h, func() int64 { return clock })
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close(false)
	h.plug("fake0", "eth0")
	changes(t, b)
	f := placedUDP(t, "f", 1, 0)
	for what, err := range map[string]error{"absent": b.Absent(), "fits": b.Fits(f.Flow, nil, nil)} {
		if !errors.Is(err, syscall.EACCES) || !strings.Contains(err.Error(), "fake0 of eth0") {
			t.Errorf("%s: %v, want why fake0 was not opened", what, err)
		}
	}
	infos, err := h.devices()
	if err != nil {
		t.Fatal(err)
	}
	b.stop() // only the test searches from here on
	b.running.Wait()
	tried := func(infos []portInfo) int { _, late := b.checkDevices(infos); return len(late) }
	if tried(infos) != 0 {
		t.Error("it is tried again at once")
	}
	clock += 2 * int64(distrust)
	if tried(infos) != 1 {
		t.Error("it is not tried again in the end")
	}
	b.openLate(b.devices[0], infos)
	if n := strings.Count(log.String(), "level=WARN"); n != 1 {
		t.Errorf("refused for one reason twice, it is said %d times:\n%s", n, &log)
	}
	clock -= int64(distrust)
	select {
	case <-b.Changed(): // an old signal
	default:
	}
	if tried(nil) != 0 {
		t.Error("it is tried while it is away")
	}
	if err := b.Absent(); !errors.Is(err, backend.ErrNoDevice) {
		t.Errorf("absent: %v, want that the device has gone", err)
	}
	changes(t, b)
	if tried(infos) != 1 {
		t.Error("it is not tried when it was away meanwhile")
	}
	h.allow()
	b.openLate(b.devices[0], infos)
	for what, err := range map[string]error{"absent": b.Absent(), "fits": b.Fits(f.Flow, nil, nil)} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// When the interfaces change, flows leave their devices and fit those of the new interfaces. Devices that nobody needs any more
// are closed.
func TestFlowsFollowTheInterfaces(t *testing.T) {
	h := newFakeHost("eth0", "eth1")
	b := openFake(t, h, "eth0")
	f := placedUDP(t, "f", 1, 0)
	install := func(names ...string) {
		t.Helper()
		if err := b.Fits(f.Flow, nil, nil); err != nil {
			t.Fatal(err)
		}
		in, err := b.Install(t.Context(), []backend.Placed{f})
		if err != nil || in[0].Source.DeviceNames() != strings.Join(names, ",") {
			t.Fatalf("%v, %v, want %q", in, err, names)
		}
	}
	set := func(list ...dataplane.Interface) {
		t.Helper()
		if err := b.SetInterfaces(list); err != nil {
			t.Fatal(err)
		}
		lab.Eventually(t, "every device is open", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return !slices.ContainsFunc(b.devices, func(d *device) bool { return d.open == nil && !d.leaving })
		})
		if err := b.Fits(f.Flow, nil, nil); err == nil {
			t.Fatal("the flow fits the devices of before")
		}
		changes(t, b)
		if err := b.Remove(t.Context(), []backend.Placed{f}); err != nil {
			t.Fatal(err)
		}
		changes(t, b) // the flow may return
	}
	install("fake0")
	set(dataplane.Interface{Name: "eth0", Mode: "native"}, dataplane.Interface{Name: "eth1"})
	install("fake0", "fake1")
	set(dataplane.Interface{Name: "eth0"}, dataplane.Interface{Name: "eth1", Direction: dataplane.DirectionEgress})
	install("fake0")
	set(dataplane.Interface{Name: "eth1"})
	install("fake1")
	lab.Eventually(t, "the device of eth0 is closed", func() bool {
		n := h.nic(0)
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.isClosed
	})
}

// Reads fail while a device is away. That is no reason to distrust it once it is back.
func TestADeviceThatIsBackIsTrusted(t *testing.T) {
	h := newFakeHost("eth0")
	b := openFake(t, h, "eth0")
	infos, err := h.devices()
	if err != nil {
		t.Fatal(err)
	}
	b.stop() // only the test searches from here on
	b.running.Wait()
	d := b.devices[0]
	d.gaveUp.Store(&failure{err: syscall.EIO, at: b.now()})
	b.mu.Lock()
	d.down = backend.ErrDeviceLost
	b.mu.Unlock()
	b.reopen(d, infos)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := d.usable(); err != nil {
		t.Errorf("a device that is back: %v", err)
	}
}
