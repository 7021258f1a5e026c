package xdp

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/flowtally/flowtally/internal/lab"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// openTest opens a datapath that ends with the test.
func openTest(t testing.TB, o Options) *Datapath {
	t.Helper()
	need.BPF(t)
	dp, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dp.Destroy(); err != nil {
			t.Error(err)
		}
	})
	return dp
}

// pinDir is a directory for pins that is gone after the test.
func pinDir(t testing.TB) string {
	t.Helper()
	need.BPF(t)
	dir := filepath.Join(need.BPFFS(t), lab.Unique("ft-test-"))
	t.Cleanup(func() {
		os.RemoveAll(dir)
	})
	return dir
}

func mustCounter(t testing.TB, dp *Datapath, owner string) uint32 {
	t.Helper()
	c, err := dp.AllocCounter(owner)
	if err != nil {
		t.Fatal(err)
	}
	return c.ID
}

func mustAdd(t testing.TB, dp *Datapath, rules ...Rule) {
	t.Helper()
	if err := dp.Add(rules...); err != nil {
		t.Fatal(err)
	}
}

func readOne(t testing.TB, dp *Datapath, id uint32) Pair {
	t.Helper()
	var p [1]Pair
	if err := dp.Read([]uint32{id}, p[:]); err != nil {
		t.Fatal(err)
	}
	return p[0]
}

// program is one as it would be attached to a hook now.
func program(t testing.TB, dp *Datapath, h Hook, port uint16) *ebpf.Program {
	t.Helper()
	dp.mu.Lock()
	defer dp.mu.Unlock()
	p, err := dp.loadFor(dp.constants, site{hookKey: hookKey{port, h}, tcx: h == HookEgress})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func runFrame(t testing.TB, p *ebpf.Program, frame []byte) uint32 {
	t.Helper()
	verdict, err := p.Run(&ebpf.RunOptions{Data: frame})
	if err != nil {
		t.Fatalf("running on % x: %v", frame, err)
	}
	return verdict
}

// udp4 is an IPv4 UDP frame of size bytes.
func udp4(src, dst uint32, sport, dport uint16, size int) []byte {
	b := make([]byte, size)
	copy(b, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0})
	ip := b[14:]
	ip[0], ip[8], ip[9] = 0x45, 64, 17
	binary.BigEndian.PutUint16(ip[2:], uint16(size-14))
	binary.BigEndian.PutUint32(ip[12:], src)
	binary.BigEndian.PutUint32(ip[16:], dst)
	binary.BigEndian.PutUint16(ip[20:], sport)
	binary.BigEndian.PutUint16(ip[22:], dport)
	binary.BigEndian.PutUint16(ip[24:], uint16(size-34))
	return b
}

// exact4 is the rule of one UDP flow on ingress.
func exact4(src, dst uint32, sport, dport uint16, counter uint32) Rule {
	r := Rule{Counter: counter}
	k, m := &r.Key.Out, &r.Mask.Out
	k.Flags, m.Flags = FlagIPv4|FlagL4, FlagIPv4|FlagL4|FlagEgress
	k.Proto, m.Proto = 17, 0xff
	binary.BigEndian.PutUint16(k.L4[:], sport)
	binary.BigEndian.PutUint16(k.L4[2:], dport)
	m.L4 = [4]byte{255, 255, 255, 255}
	binary.BigEndian.PutUint32(k.Addr[:], src)
	binary.BigEndian.PutUint32(k.Addr[4:], dst)
	for i := range 8 {
		m.Addr[i] = 255
	}
	return r
}

const (
	xdpDrop = 1
	xdpPass = 2
	tcxNext = 0xffffffff
	tcxShot = 2
)

func ownerName(i int) string { return fmt.Sprintf("flow-%d", i) }

// testWire is a veth pair that ends with the test.
func testWire(t testing.TB) *lab.Wire {
	t.Helper()
	need.Netns(t)
	need.TCX(t)
	w, err := lab.NewWire(lab.WireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

// attach takes hooks of an end, from within its namespace.
func attach(t testing.TB, dp *Datapath, e *lab.End, o AttachOptions) []Attachment {
	t.Helper()
	var got []Attachment
	err := e.NS.Do(func() (err error) {
		got, err = dp.Attach(e.Name, o)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// ip runs ip link in the namespace of the calling thread.
func ip(args string) error {
	out, err := exec.Command("ip", append([]string{"link"}, strings.Fields(args)...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip link %s: %w: %s", args, err, out)
	}
	return nil
}
