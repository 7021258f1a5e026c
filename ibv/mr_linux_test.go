//go:build cgo

package ibv

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flowtally/flowtally/ibv/ibvtest"
)

// stamp is written into a region to recognize its memory later.
const stamp = "a region's own memory"

// kept reports whether the memory at an address has the stamp still. That the address is mapped says nothing: the
// runtime may have mapped other memory there.
func kept(t *testing.T, addr uint64) bool {
	t.Helper()
	mem := must(os.Open("/proc/self/mem"))(t)
	defer mem.Close()
	got := make([]byte, len(stamp))
	_, err := mem.ReadAt(got, int64(addr))
	return err == nil && string(got) == stamp
}

// AllocMR maps the memory of the first region; the caller maps that of the second.
func TestMemoryRegionsAreUnmappedOnlyByTheirOwner(t *testing.T) {
	b := newData(t, newWire(t), Options{})
	m := must(b.pd.AllocMR(10_000, everyAccess))(t)
	mem := m.Bytes()
	if len(mem) != 10_000 || bytes.ContainsFunc(mem, func(r rune) bool { return r != 0 }) {
		t.Errorf("%d bytes, or not zeroed", len(mem))
	}
	if copy(mem, stamp); !kept(t, m.Addr()) || m.Addr()%4096 != 0 {
		t.Errorf("address %#x", m.Addr())
	}
	other := b.region()
	if m.LKey() == other.LKey() || m.RKey() == other.RKey() {
		t.Error("two regions have one key")
	}
	if err := b.pd.Close(); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "memory regions") {
		t.Errorf("closing the domain: %v", err)
	}
	addr := m.Addr()
	for range 2 {
		b.check(m.Close())
	}
	if _, known := b.pd.regionByLKey.Load(m.LKey()); known || m.Bytes() != nil || kept(t, addr) {
		t.Error("the memory is still there, or known")
	}

	own, err := syscall.Mmap(-1, 0, 8192, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_SHARED)
	b.check(err)
	r := must(b.pd.RegMR(own[100:200], everyAccess))(t)
	if copy(own[100:], stamp); len(r.Bytes()) != 100 || &r.Bytes()[0] != &own[100] || !kept(t, r.Addr()) {
		t.Error("it is not the memory that was given")
	}
	at := r.Addr()
	b.check(r.Close())
	if !kept(t, at) {
		t.Error("Close unmapped the caller's memory")
	}
	b.check(syscall.Munmap(own))
}

// The refusals are those of ibv_reg_mr(3) and of the kernel.
func TestRefusedMemoryRegionNamesTheRemedy(t *testing.T) {
	wire := newWire(t)
	b := newData(t, wire, Options{})
	for _, length := range []int{0, -1} {
		if _, err := b.pd.AllocMR(length, 0); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("a region of %d bytes: %v", length, err)
		}
	}
	_, err := b.pd.RegMR(nil, 0)
	wantErrno(t, err, "ibv_reg_mr", syscall.EINVAL)
	_, err = b.pd.AllocMR(4096, AccessRemoteWrite)
	if wantErrno(t, err, "ibv_reg_mr", syscall.EINVAL); !strings.Contains(err.Error(), "local write") {
		t.Errorf("the error does not say what is missing: %v", err)
	}

	b.check(errors.Join(b.cq.Close(), b.pd.Close(), b.ctx.Close())) // the kernel reads its environment when no device is open
	b = newData(t, wire, Options{}, "FAIL", "ibv_reg_mr=ENOMEM")
	_, err = b.pd.AllocMR(4096, everyAccess)
	if wantErrno(t, err, "ibv_reg_mr", syscall.ENOMEM); !strings.Contains(err.Error(), "RLIMIT_MEMLOCK") {
		t.Errorf("the error does not name the limit: %v", err)
	}
}

// A device that refuses to deregister may still write, so the memory stays mapped as long as the
// context. After EBUSY, Close can be repeated.
func TestMemoryStaysMappedIfTheDeviceKeepsIt(t *testing.T) {
	b := newLibrary(t, newWire(t), softLibs(t).Shim, "FAIL", "ibv_dereg_mr=EBUSY@1-1,ibv_dereg_mr=EPERM,ibv_close_device=EPERM")
	b.abandons = true
	b.open()
	pd := must(b.ctx.AllocPD())(t)
	m := must(pd.AllocMR(4096, everyAccess))(t)
	copy(m.Bytes(), stamp)
	wantErrno(t, m.Close(), "ibv_dereg_mr", syscall.EBUSY)
	if len(m.Bytes()) != 4096 {
		t.Error("a region that is busy is not open any more")
	}
	wantErrno(t, m.Close(), "ibv_dereg_mr", syscall.EPERM)
	if m.Bytes() != nil || !kept(t, m.Addr()) {
		t.Error("the memory is offered still, or unmapped already")
	}
	_ = pd.Close()
	if err := b.ctx.Close(); err == nil {
		t.Error("the context was closed")
	}
	if !kept(t, m.Addr()) {
		t.Error("the memory is gone, the library has it still")
	}
}

func TestBusyMemoryIsUnmappedOnce(t *testing.T) {
	b := newData(t, newWire(t), Options{}, "FAIL", "ibv_dereg_mr=EBUSY@1-1")
	m := must(b.pd.AllocMR(4096, everyAccess))(t)
	copy(m.Bytes(), stamp)
	wantErrno(t, m.Close(), "ibv_dereg_mr", syscall.EBUSY)
	b.check(m.Close())
	if kept(t, m.Addr()) {
		t.Error("the memory is still there")
	}
	if b.ctx.abandonedMem != nil {
		t.Error("the context is to unmap it again")
	}
}

// The kernel of a removed device may refuse to deregister a region.
func TestMemoryOfARemovedDeviceIsUnmappedWithTheContext(t *testing.T) {
	control := must(ibvtest.NewControl(t.TempDir() + "/control"))(t)
	defer control.Close()
	b := newLibrary(t, newWire(t), "", "CONTROL", control.Path(), "FAIL", "ibv_dereg_mr=EIO,ibv_dealloc_pd=EIO")
	b.abandons = true
	b.open()
	pd := must(b.ctx.AllocPD())(t)
	m := must(pd.AllocMR(4096, everyAccess))(t)
	copy(m.Bytes(), stamp)
	b.check(control.Remove(device()))
	soon, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if e := must(b.ctx.NextEvent(soon))(t); e.Type != EventDeviceFatal {
		t.Fatalf("event %v", e.Type)
	}
	if err := m.Close(); !errors.Is(err, ErrDeviceGone) || !kept(t, m.Addr()) {
		t.Errorf("closing the region: %v, or its memory went before the device", err)
	}
	if err := pd.Close(); !errors.Is(err, ErrDeviceGone) {
		t.Errorf("closing the domain: %v", err)
	}
	b.check(b.ctx.Close())
	if kept(t, m.Addr()) {
		t.Error("the memory outlived the context")
	}
}

// The error shows at the peer, or here.
func TestForbiddenAccessToARegionEndsInAnError(t *testing.T) {
	wire := newWire(t)
	for _, c := range []struct {
		name   string
		access AccessFlags
		wr     func(mine, theirs *MR) SendWR
		want   WCStatus
	}{
		{"write without remote write", AccessLocalWrite | AccessRemoteRead, func(mine, theirs *MR) SendWR {
			return with(write(theirs), func(w *SendWR) { w.SGE = sge(mine, 64) })
		}, WCRemAccessErr},
		{"read without remote read", AccessLocalWrite | AccessRemoteWrite, func(mine, theirs *MR) SendWR {
			return with(read(theirs), func(w *SendWR) { w.SGE = sge(mine, 64) })
		}, WCRemAccessErr},
		{"read into what may not be written", 0, func(mine, theirs *MR) SendWR {
			return with(read(mine), func(w *SendWR) { w.SGE = sge(theirs, 64) })
		}, WCLocProtErr},
		{"beyond the end", everyAccess, func(mine, theirs *MR) SendWR {
			return with(write(theirs), func(w *SendWR) { w.SGE, w.RemoteAddr = sge(mine, 64), theirs.Addr()+4096-63 })
		}, WCRemAccessErr},
		{"a key that is another's", everyAccess, func(mine, theirs *MR) SendWR {
			return with(write(theirs), func(w *SendWR) { w.SGE = SGE{theirs.Addr(), 64, mine.LKey()} })
		}, WCLocProtErr},
		{"all that it allows", everyAccess, func(mine, theirs *MR) SendWR {
			return with(write(theirs), func(w *SendWR) { w.SGE = sge(mine, 64) })
		}, WCSuccess},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newData(t, wire, Options{})
			mine := b.region()
			theirs := must(b.pd.AllocMR(4096, c.access))(t)
			b.closes(theirs)
			x, _ := b.rc(nil)
			b.post(x, c.wr(mine, theirs))
			if wc := b.completions(1)[0]; wc.Status != c.want {
				t.Errorf("%v, want %v", wc.Status, c.want)
			}
		})
	}
}

// This holds on Ethernet.
func TestGIDIsAnAddressOfTheNetdev(t *testing.T) {
	b := newData(t, newWire(t), Options{})
	port := must(b.ctx.QueryPort(1))(t)
	gid := must(b.ctx.QueryGID(1, 0))(t)
	mac := b.wire.Near.MAC
	want := GID{0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]}
	if gid != want || gid.String() != netip.AddrFrom16(want).String() {
		t.Errorf("GID %v, want %v", gid, want)
	}
	for _, c := range []struct {
		port  uint8
		index int
	}{{0, 0}, {2, 0}, {1, -1}, {1, port.GIDTblLen}, {1, 1 << 40}} {
		if g, err := b.ctx.QueryGID(c.port, c.index); err == nil || g != (GID{}) {
			t.Errorf("entry %d of port %d: %v, %v", c.index, c.port, g, err)
		}
	}
}

// The second half checks the device's refusals.
func TestAddressHandleHoldsItsDomain(t *testing.T) {
	b := newData(t, newWire(t), Options{})
	a := b.address()
	ah := must(b.pd.CreateAH(a))(t)
	if err := b.pd.Close(); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "1 address handle") {
		t.Errorf("closing the domain: %v", err)
	}
	for range 2 {
		b.check(ah.Close())
	}
	for _, change := range []func(*AHAttr){
		func(a *AHAttr) { a.PortNum = 0 }, func(a *AHAttr) { a.PortNum = 2 }, func(a *AHAttr) { a.IsGlobal = false },
		func(a *AHAttr) { a.GRH.SGIDIndex = 255 },
	} {
		// For a port that is not there libmlx5 returns no object and no errno, which the binding takes for EIO.
		if _, err := b.pd.CreateAH(with(a, change)); !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.EIO) {
			t.Errorf("%+v: %v", with(a, change), err)
		}
	}
}
