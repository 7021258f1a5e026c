package xdp_test

import (
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/memkernel"
	"github.com/flowtally/flowtally/xdp"
)

// Under Options.Kernel, sets answer as those of the host: while they change and grow, and after the process was killed.
func TestSetsOfTheKernelInMemoryOutliveTheProcess(t *testing.T) {
	var pages memkernel.Pages
	host := memkernel.NewHost(&pages)
	defer host.Close()
	host.Add("eth0", "device")
	dir := filepath.Join(t.TempDir(), "pins")
	p := host.Boot(nil)
	open := func() *xdp.Datapath {
		t.Helper()
		dp, err := xdp.Open(xdp.Options{Kernel: p, PinDir: dir, MaxRules: 256})
		if err != nil {
			t.Fatal(err)
		}
		return dp
	}
	drops := func(want bool) {
		t.Helper()
		seen, dropped, err := host.Pass("eth0", false, memkernel.Packet{Port: 53, Bytes: 100})
		if err != nil || seen != 1 || dropped != want {
			t.Errorf("seen by %d programs, dropped: %t, want %t: %v", seen, dropped, want, err)
		}
	}

	dp := open()
	member := netip.MustParsePrefix("192.0.2.1/32") // the source of the packet
	if err := dp.OpenSets(xdp.SetSpec{Name: "ban", Elements: []netip.Prefix{member}}); err != nil {
		t.Fatal(err)
	}
	m, err := dp.Membership("ban", xdp.Field{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := dp.AllocCounter("ban")
	if err != nil {
		t.Fatal(err)
	}
	r := xdp.Rule{Counter: c.ID, Drop: true}
	m.Condition(&r, true)
	if err := dp.Add(r); err != nil {
		t.Fatal(err)
	}
	if _, err := dp.Attach("eth0", xdp.AttachOptions{Ingress: true}); err != nil {
		t.Fatal(err)
	}
	drops(true)
	if _, err := dp.RemoveMembers("ban", member); err != nil {
		t.Fatal(err)
	}
	drops(false)
	many := []netip.Prefix{member}
	for i := range 1000 {
		many = append(many, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32))
	}
	if n, err := dp.AddMembers("ban", many...); n != len(many) || err != nil {
		t.Fatal(n, err)
	}
	drops(true)

	next := dir + "-2"
	if err := p.Kill(dir, next); err != nil {
		t.Fatal(err)
	}
	dir = next
	drops(true)
	p = host.Boot(nil)
	dp = open()
	defer dp.Close()
	drops(true)
	if list := dp.Sets(); len(list) != 1 || !list[0].Adopted {
		t.Errorf("adopted %+v", list)
	}
	if err := dp.OpenSets(xdp.SetSpec{Name: "ban"}); err != nil {
		t.Fatal(err)
	}
	drops(false)
}
