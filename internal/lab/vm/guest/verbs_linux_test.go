//go:build vm

package guest

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/probe"
)

// TestVerbsSeeTheDevice compares the attributes that the binding reads with the output of
// rdma-core's own program.
func TestVerbsSeeTheDevice(t *testing.T) {
	newPair(t, "v0")
	addRXE(t, "rxe0", "v0")
	lib, ctx := openRXE(t, "rxe0")
	devices, err := lib.Devices()
	if err != nil || len(devices) != 1 || devices[0].Name != "rxe0" {
		t.Fatalf("devices %+v, %v; want rxe0 alone", devices, err)
	}
	d := devices[0]
	if d.NodeType != ibv.NodeCA || d.Transport != ibv.TransportIB || d.SysfsPath != "/sys/class/infiniband/rxe0" {
		t.Errorf("got %+v", d)
	}
	attr, err := ctx.QueryDevice()
	if err != nil {
		t.Fatal(err)
	}
	port, err := ctx.QueryPort(1)
	if err != nil {
		t.Fatal(err)
	}
	info := devinfo(t, "rxe0")
	guid := fmt.Sprintf("%016x", attr.NodeGUID)
	for _, c := range []struct{ field, got string }{
		{"node_guid", strings.Join([]string{guid[:4], guid[4:8], guid[8:12], guid[12:]}, ":")},
		{"vendor_id", fmt.Sprintf("0x%04x", attr.VendorID)},
		{"vendor_part_id", fmt.Sprint(attr.VendorPartID)},
		{"phys_port_cnt", fmt.Sprint(attr.PhysPortCnt)},
		{"max_mr_size", fmt.Sprintf("0x%x", attr.MaxMRSize)},
		{"max_qp", fmt.Sprint(attr.MaxQP)},
		{"max_qp_wr", fmt.Sprint(attr.MaxQPWR)},
		{"max_sge", fmt.Sprint(attr.MaxSGE)},
		{"max_cq", fmt.Sprint(attr.MaxCQ)},
		{"max_cqe", fmt.Sprint(attr.MaxCQE)},
		{"max_pd", fmt.Sprint(attr.MaxPD)},
		{"max_raw_ethy_qp", fmt.Sprint(attr.MaxRawEthyQP)},
		{"max_mtu", fmt.Sprintf("%d (%d)", port.MaxMTU.Bytes(), port.MaxMTU)},
		{"active_mtu", fmt.Sprintf("%d (%d)", port.ActiveMTU.Bytes(), port.ActiveMTU)},
		{"sm_lid", fmt.Sprint(port.SMLID)},
		{"port_lid", fmt.Sprint(port.LID)},
		{"link_layer", fmt.Sprint(port.LinkLayer)},
		{"gid_tbl_len", fmt.Sprint(port.GIDTblLen)},
		{"max_msg_sz", fmt.Sprintf("0x%x", port.MaxMsgSz)},
		{"state", fmt.Sprintf("PORT_%s (%d)", strings.ToUpper(port.State.String()), port.State)},
	} {
		if info[c.field] != c.got {
			t.Errorf("%s: read %q, ibv_devinfo prints %q", c.field, c.got, info[c.field])
		}
	}
	if d.GUID != attr.NodeGUID {
		t.Errorf("the list has GUID %x, the device %x", d.GUID, attr.NodeGUID)
	}
}

// devinfo is the output of ibv_devinfo -v, by field; of a repeated field, the first.
func devinfo(t *testing.T, device string) map[string]string {
	t.Helper()
	fields := make(map[string]string)
	for _, m := range regexp.MustCompile(`(?m)^\s*(\w+):\s+(.+?)\s*$`).FindAllStringSubmatch(command(t, "ibv_devinfo", "-v", "-d", device), -1) {
		if _, ok := fields[m[1]]; !ok {
			fields[m[1]] = m[2]
		}
	}
	if len(fields) < 30 {
		t.Fatalf("ibv_devinfo printed %d fields", len(fields))
	}
	return fields
}

// TestVerbsAnswerNo: rxe has neither flows nor counters, and every probe of them returns the reason
// and the fix.
func TestVerbsAnswerNo(t *testing.T) {
	newPair(t, "v0")
	addRXE(t, "rxe0", "v0")
	lib, ctx := openRXE(t, "rxe0")
	if _, err := ctx.CreateCounters(); !errors.Is(err, probe.ErrNotSupported) || !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("counters: %v; want EOPNOTSUPP, which says not supported", err)
	} else if s := err.Error(); !strings.Contains(s, "rxe0") || !strings.Contains(s, "ibv_create_counters") {
		t.Errorf("%q names neither device nor verb", s)
	}
	results := ibv.Probe(lib, "rxe0")
	if len(results) != 6 {
		t.Errorf("%d answers, want one to each of 6 questions", len(results))
	}
	for _, r := range results {
		t.Logf("%s %s: %s: %s (%s)", r.Object, r.Feature, r.Answer, r.Reason, r.Fix)
		if r.Answer != probe.No || r.Reason == "" || r.Fix == "" {
			t.Errorf("%+v: want a no with reason and fix", r)
		}
	}
}

// TestVerbsModifyFollowsTheTableOfTheKernel walks the state machine of a reliable connection against the kernel's own
// table, and leaves one required attribute out at a time.
func TestVerbsModifyFollowsTheTableOfTheKernel(t *testing.T) {
	newPair(t, "v0")
	addRXE(t, "rxe0", "v0")
	_, ctx := openRXE(t, "rxe0")
	pd, err := ctx.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, pd)
	cq, err := ctx.CreateCQ(ibv.CQOptions{CQE: 8})
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, cq)
	one := ibv.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}
	for _, typ := range []ibv.QPType{ibv.QPTUD, ibv.QPTRC} {
		t.Run(typ.String(), func(t *testing.T) {
			qp, err := pd.CreateQP(ibv.QPOptions{Type: typ, SendCQ: cq, RecvCQ: cq, Cap: one})
			if err != nil {
				t.Fatal(err)
			}
			mustClose(t, qp)
			refused := 0
			for _, step := range walk(typ, qp.Number()) {
				for bit := ibv.QPAttrMask(1); bit <= step.mask; bit <<= 1 {
					if step.mask&bit == 0 || bit == ibv.QPAttrState {
						continue
					}
					err := qp.Modify(step.attr, step.mask&^bit)
					if !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), bit.String()) {
						t.Errorf("to %v without %v: %v; want EINVAL that names it", step.attr.State, bit, err)
					}
					refused++
				}
				if err := qp.Modify(step.attr, step.mask); err != nil {
					t.Fatal(err)
				}
				got, err := qp.Query(ibv.QPAttrState)
				if err != nil || got.State != step.attr.State {
					t.Fatalf("state %v, %v; want %v", got.State, err, step.attr.State)
				}
			}
			t.Logf("%d calls that lack an attribute were refused", refused)
		})
	}
	if err := pd.Close(); err != nil {
		t.Error("the queue pairs are closed: ", err)
	}
}

type move struct {
	attr ibv.QPAttr
	mask ibv.QPAttrMask
}

// walk is the way of a queue pair from RESET to RTS, connected to itself.
func walk(typ ibv.QPType, number uint32) []move {
	const state = ibv.QPAttrState
	if typ == ibv.QPTUD {
		return []move{
			{ibv.QPAttr{State: ibv.QPSInit, PortNum: 1, QKey: 0x11111111}, state | ibv.QPAttrPKeyIndex | ibv.QPAttrPort | ibv.QPAttrQKey},
			{ibv.QPAttr{State: ibv.QPSRTR}, state},
			{ibv.QPAttr{State: ibv.QPSRTS}, state | ibv.QPAttrSQPSN},
		}
	}
	return []move{
		{ibv.QPAttr{State: ibv.QPSInit, PortNum: 1}, state | ibv.QPAttrPKeyIndex | ibv.QPAttrPort | ibv.QPAttrAccessFlags},
		{
			ibv.QPAttr{State: ibv.QPSRTR, PathMTU: ibv.MTU1024, DestQPNum: number, MaxDestRdAtomic: 1, MinRNRTimer: 12, AH: self()},
			state | ibv.QPAttrAV | ibv.QPAttrPathMTU | ibv.QPAttrDestQPN | ibv.QPAttrRQPSN | ibv.QPAttrMaxDestRdAtomic | ibv.QPAttrMinRNRTimer,
		},
		{
			ibv.QPAttr{State: ibv.QPSRTS, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 1},
			state | ibv.QPAttrTimeout | ibv.QPAttrRetryCnt | ibv.QPAttrRNRRetry | ibv.QPAttrSQPSN | ibv.QPAttrMaxQPRdAtomic,
		},
	}
}

// self is the address 10.77.0.1 of v0, by the GID that RoCE makes of it.
func self() ibv.AHAttr {
	a := ibv.AHAttr{IsGlobal: true, PortNum: 1}
	a.GRH.DGID = [16]byte{10: 0xff, 11: 0xff, 12: 10, 13: 77, 14: 0, 15: 1}
	a.GRH.SGIDIndex, a.GRH.HopLimit = 1, 1
	return a
}

// A port that goes down and comes up says so.
func TestVerbsEventsFollowThePort(t *testing.T) {
	newPair(t, "v0")
	addRXE(t, "rxe0", "v0")
	_, ctx := openRXE(t, "rxe0")
	link, err := netlink.LinkByName("v0")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		set  func(netlink.Link) error
		want ibv.EventType
	}{{netlink.LinkSetDown, ibv.EventPortErr}, {netlink.LinkSetUp, ibv.EventPortActive}} {
		if err := c.set(link); err != nil {
			t.Fatal(err)
		}
		bounded, cancel := context.WithTimeout(t.Context(), patience)
		for {
			e, err := ctx.NextEvent(bounded)
			if err != nil {
				t.Fatalf("waiting for %v: %v", c.want, err)
			}
			t.Logf("%v of port %d", e.Type, e.Port)
			if e.Type == c.want && e.Port == 1 {
				break
			}
		}
		cancel()
	}
	// rxe says twice that a port is up. Waiting for more ends with its context, not before.
	bounded, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	for {
		e, err := ctx.NextEvent(bounded)
		if errors.Is(err, context.DeadlineExceeded) && bounded.Err() != nil {
			break
		}
		if err != nil || e.Type != ibv.EventPortActive {
			t.Fatalf("got %+v, %v; want nothing new", e, err)
		}
	}
}

// The driver of rxe cannot take a device from the processes that have it open. Its removal waits for them, without an
// event; the device is off the list meanwhile. A process without use for such a device must therefore not keep it open,
// and closing it completes the removal.
func TestVerbsRemovalWaitsUntilTheDeviceIsClosed(t *testing.T) {
	newPair(t, "v0")
	if err := netlink.RdmaLinkAdd("rxe0", "rxe", "v0"); err != nil {
		t.Fatal(err)
	}
	lib, ctx := openRXE(t, "rxe0")
	removed := make(chan error, 1)
	go func() { removed <- netlink.RdmaLinkDel("rxe0") }()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		devices, err := lib.Devices()
		if err != nil {
			t.Fatal(err)
		}
		if len(devices) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the list still has %+v", devices)
		}
	}
	if _, err := ctx.QueryDevice(); err != nil {
		t.Errorf("an open context: %v; want that it goes on", err)
	}
	if _, err := lib.Open("rxe0"); !errors.Is(err, ibv.ErrNoDevice) {
		t.Errorf("opening it again: %v; want ErrNoDevice", err)
	}
	select {
	case err := <-removed:
		t.Errorf("it was removed (%v) while a context is open", err)
	default:
	}
	if err := ctx.Close(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-removed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("its removal still waits, and nobody has it open")
	}
}

// The stack underneath is whole, as rdma-core's own program sees it.
func TestPingpongOfRDMACoreWorks(t *testing.T) {
	newPair(t, "v0")
	addRXE(t, "rxe0", "v0")
	args := []string{"-d", "rxe0", "-g", "1", "-n", "100"}
	server := exec.CommandContext(t.Context(), "ibv_rc_pingpong", args...)
	var out strings.Builder
	server.Stdout, server.Stderr = &out, &out
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(patience)
	var client []byte
	for {
		var err error
		client, err = exec.CommandContext(t.Context(), "ibv_rc_pingpong", append(args, "10.77.0.1")...).CombinedOutput()
		if err == nil {
			break
		}
		if time.Now().After(deadline) { // until then the server may not listen yet
			t.Fatalf("client: %v\n%s\nserver:\n%s", err, client, out.String())
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err := server.Wait(); err != nil {
		t.Fatalf("server: %v\n%s", err, out.String())
	}
	if !strings.Contains(string(client), "100 iters") {
		t.Errorf("client printed\n%s", client)
	}
}
