//go:build vm

package guest

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/ibv/ibvtest"
	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/demo"
	"github.com/flowtally/flowtally/internal/lab/frame"
	"github.com/flowtally/flowtally/plugin"
)

// bond is a bond of the kernel with mode active-backup, over one end each of veth pairs.
type bond struct {
	*testing.T
	name  string
	pairs []*lab.Pair
}

func newBond(t *testing.T, name string, slaves ...string) *bond {
	t.Helper()
	b := &bond{T: t, name: name}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	l := netlink.NewLinkBond(attrs)
	l.Mode, l.Miimon = netlink.BOND_MODE_ACTIVE_BACKUP, 50
	b.must(netlink.LinkAdd(l))
	t.Cleanup(func() { b.must(netlink.LinkDel(l)) })
	for _, s := range slaves {
		b.pairs = append(b.pairs, newPair(t, s))
		b.join(s)
	}
	b.must(netlink.LinkSetUp(l))
	addr, err := netlink.ParseAddr("10.78.0.1/24")
	b.must(err)
	b.must(netlink.AddrAdd(l, addr))
	b.must(netlink.NeighAdd(&netlink.Neigh{
		LinkIndex: l.Index, State: netlink.NUD_PERMANENT, IP: net.IPv4(10, 78, 0, 2), HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 2},
	}))
	return b
}

func (b *bond) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bond) link(name string) netlink.Link {
	b.Helper()
	l, err := netlink.LinkByName(name)
	b.must(err)
	return l
}

// join makes a slave of an interface, which has to be down meanwhile.
func (b *bond) join(slave string) {
	b.Helper()
	b.must(netlink.LinkSetDown(b.link(slave)))
	b.must(netlink.LinkSetMaster(b.link(slave), b.link(b.name)))
	b.await("slaves", func(text string) bool { return slices.Contains(strings.Fields(text), slave) })
	awaitRunning(b.T, slave)
}

func (b *bond) leave(slave string) {
	b.Helper()
	b.must(netlink.LinkSetNoMaster(b.link(slave)))
	b.must(netlink.LinkSetUp(b.link(slave)))
	b.await("slaves", func(text string) bool { return !slices.Contains(strings.Fields(text), slave) })
	awaitRunning(b.T, slave)
}

// activate makes a slave the one by which the bond sends.
func (b *bond) activate(slave string) {
	b.Helper()
	b.await("active_slave", func(string) bool { // refused while the bond has not seen the slave's link
		return os.WriteFile(b.file("active_slave"), []byte(slave), 0) == nil
	})
	b.await("active_slave", func(text string) bool { return strings.TrimSpace(text) == slave })
}

func (b *bond) file(name string) string {
	return filepath.Join("/sys/class/net", b.name, "bonding", name)
}

func (b *bond) await(file string, is func(text string) bool) {
	b.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(b.file(file))
		b.must(err)
		if is(string(text)) {
			return
		}
		if time.Now().After(deadline) {
			b.Fatalf("%s has %q", b.file(file), text)
		}
	}
}

func awaitRunning(t *testing.T, name string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		i, err := net.InterfaceByName(name)
		if err == nil && i.Flags&net.FlagUp != 0 && i.Flags&net.FlagRunning != 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not running: %+v, %v", name, i, err)
		}
	}
}

// receive sends packets to one slave from the far end of its pair.
func (b *bond) receive(slave int, packets uint64) {
	b.Helper()
	frames := frame.Sized(100, frame.Eth{Dst: [6]byte{2, 0, 0, 0, 0, 1}, Src: [6]byte{2, 0, 0, 0, 0, 2}},
		frame.IPv4{Src: frame.Addr("10.78.0.2"), Dst: frame.Addr("10.78.0.1")}, frame.UDP{Src: 9, Dst: 7000})
	s, err := b.pairs[slave].B.NewSender([]lab.Stream{{Name: "in", Frames: [][]byte{frames}}}, lab.SenderOptions{})
	b.must(err)
	defer s.Close()
	b.must(s.Run(b.Context(), packets))
	b.must(s.Settle(b.Context()))
}

// send sends packets through the bond.
func (b *bond) send(packets int) {
	b.Helper()
	c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.MustParseAddrPort("10.78.0.2:7001")))
	b.must(err)
	defer c.Close()
	for range packets {
		_, err := c.Write(make([]byte, 100))
		b.must(err)
	}
}

// The packets of a bond of the kernel are counted by the software device of the slave that they pass, before and after
// a change of the active slave, while a slave is out of the bond, and when it is back.
func TestSlavesOfABondCountItsPackets(t *testing.T) {
	b := newBond(t, "bond7", "v0", "v1")
	b.activate("v0")
	env := ibvtest.Env{Devices: []ibvtest.Device{{Name: "mlx5_0", Netdev: "v0"}, {Name: "mlx5_1", Netdev: "v1"}}}.Environ()
	env = append(env, "LD_PRELOAD="+os.Getenv("FLOWTALLY_GUEST_UVERBS"), "FLOWTALLY_IBVTEST_SYSFS="+t.TempDir())
	cfg := dataplane.Config{
		Instance: "bond", Interfaces: []dataplane.Interface{{Name: "v0"}, {Name: "v1"}}, Backend: "rdma",
	}
	in, err := flow.ParseMatch("ipv4 udp dport 7000")
	b.must(err)
	out, err := flow.ParseMatch("ipv4 udp dport 7001")
	b.must(err)
	for _, slave := range []string{"v0", "v1"} {
		cfg.Flows = append(cfg.Flows, flow.Flow{Name: "in-" + slave, Match: in, Interface: slave},
			flow.Flow{Name: "out-" + slave, Match: out, Interface: slave, Direction: flow.Egress})
	}
	t.Cleanup(func() { demo.Sweep(cfg.Instance) })
	o := plugin.Options{Path: program(t, "flowtally-plugin"), Config: cfg, Env: env, StartTimeout: patience}
	svc, err := plugin.Launch(t.Context(), o)
	b.must(err)
	mustClose(t, svc)
	placements, err := svc.Placements(t.Context())
	b.must(err)
	for _, p := range placements {
		want := map[string]string{"v0": "mlx5_0", "v1": "mlx5_1"}[p.Flow.Interface]
		if p.Source.Backend != flow.RDMA || len(p.Source.Devices) != 1 || p.Source.Devices[0].Name != want {
			t.Errorf("%s is counted by %v, want rdma %s", p.Flow.Name, p.Source, want)
		}
	}

	var sent [4]uint64 // of in-v0, out-v0, in-v1, out-v1
	check := func(step string) {
		t.Helper()
		var got [4]uint64
		for deadline := time.Now().Add(patience); ; {
			for i, v := range counted(t, svc, cfg.Flows) {
				got[i] = v.Packets
			}
			if got == sent || time.Now().After(deadline) {
				break
			}
		}
		if got != sent {
			t.Fatalf("%s: counted %v, sent %v", step, got, sent)
		}
		t.Logf("%s: sent == counted: in-v0 %d, out-v0 %d, in-v1 %d, out-v1 %d", step, got[0], got[1], got[2], got[3])
	}
	pass := func(step string, active int) {
		t.Helper()
		b.receive(0, 1000)
		b.receive(1, 700)
		b.send(300)
		sent[0], sent[2], sent[2*active+1] = sent[0]+1000, sent[2]+700, sent[2*active+1]+300
		check(step)
	}
	pass("v0 is active", 0)
	b.activate("v1")
	pass("v1 is active", 1)
	b.activate("v0")
	b.leave("v1")
	pass("v1 is out of the bond", 0)
	b.join("v1")
	pass("v1 is back", 0)
	b.activate("v1")
	pass("v1 is active again", 1)

	// The bond itself has no device.
	cfg.Instance, cfg.Interfaces, cfg.Flows = "bond-master", []dataplane.Interface{{Name: b.name}}, cfg.Flows[:1]
	cfg.Flows[0].Interface = b.name
	o.Config = cfg
	t.Cleanup(func() { demo.Sweep(cfg.Instance) })
	master, err := plugin.Launch(t.Context(), o)
	if err == nil {
		master.Close()
		t.Fatal("a device of a slave counts on the bond")
	}
	const want = "it is a bond, and the device mlx5_%[1]d counts the packets of its slave v%[1]d alone"
	if says := err.Error(); !strings.Contains(says, fmt.Sprintf(want, 0)) && !strings.Contains(says, fmt.Sprintf(want, 1)) {
		t.Errorf("%v: want %q of either slave", err, want)
	}
}

// The kernel's GID table of the device of a slave names the bond and this slave, and no other slave. The GID table of
// the active slave's device always names the bond. The software devices in TestSlavesOfABondCountItsPackets have such
// tables.
func TestRXEOfASlaveNamesTheBond(t *testing.T) {
	b := newBond(t, "bond7", "v0", "v1")
	slaves := []string{"v0", "v1"}
	for i, slave := range slaves {
		addRXE(t, fmt.Sprintf("rxe%d", i), slave)
	}
	for i, slave := range slaves {
		b.activate(slave)
		active := fmt.Sprintf("rxe%d", i)
		for deadline := time.Now().Add(patience); !slices.Contains(ndevs(active), b.name); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s is active, and the GID table of %s names %q; want %s", slave, active, ndevs(active), b.name)
			}
		}
		for i, own := range slaves {
			named := ndevs(fmt.Sprintf("rxe%d", i))
			t.Logf("%s is active: the GID table of the device of %s names %q", slave, own, named)
			if slices.ContainsFunc(named, func(n string) bool { return n != b.name && n != own }) {
				t.Errorf("the GID table of the device of %s names %q", own, named)
			}
		}
	}
}

// ndevs lists the interfaces that the GID table of a device names.
func ndevs(device string) (names []string) {
	dir := filepath.Join("/sys/class/infiniband", device, "ports/1/gid_attrs/ndevs")
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if name, err := os.ReadFile(filepath.Join(dir, e.Name())); err == nil { // EINVAL: an empty GID
			names = append(names, strings.TrimSpace(string(name)))
		}
	}
	return names
}
