package members

import (
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"
)

// FLOWTALLY_MEMBERS=1000000 prints the figures of docs/classifier.md.
func TestOneChangeStoresFewWords(t *testing.T) {
	n := 50_000
	if v := os.Getenv("FLOWTALLY_MEMBERS"); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r := newRegion(t, Shape{IPv4: n, IPv6: n})
	d := draw(600)
	start := time.Now()
	for r.n4 < n-100 {
		v := d.g.Uint32()
		a := netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
		if _, err := r.Add(netip.PrefixFrom(a, 32)); err != nil {
			t.Fatal(err)
		}
	}
	took4 := time.Since(start)
	start = time.Now()
	for r.n6 < n-100 {
		hi := 0x2001_0db8_0000_0000 ^ d.g.Uint64N(1<<50)
		if _, err := r.Add(netip.PrefixFrom(prefix6(hi, d.g.Uint64(), 0, 0, 0).Addr(), 128)); err != nil {
			t.Fatal(err)
		}
	}
	took6 := time.Since(start)
	r.Reclaim()
	runtime.GC()
	runtime.ReadMemStats(&after)
	kernel := float64(len(r.words) * 8)
	process := float64(after.HeapAlloc-before.HeapAlloc) - kernel
	t.Logf("%d elements of each version: %.1f s and %.1f s, %.1f bytes an element for programs, %.1f in the process", n,
		took4.Seconds(), took6.Seconds(), kernel/float64(2*n), process/float64(2*n))

	stores := 0
	r.stored = func() { stores++ }
	for _, change := range []struct {
		prefix string
		most   int
	}{
		{"0.0.0.0/0", topEntries / 2},
		{"10.0.0.0/8", 1 << 7},
		{"10.1.0.0/16", 1},
		{"10.2.0.0/17", 5},
		{"10.3.2.0/24", 2},
		{"10.4.4.0/25", 4*2 + 2},
		{"10.5.6.7/32", 4},
		{"::/0", 4},
		{"2000::/3", 4},
		{"2001:db8::/32", 4},
		{"2001:db8::1/128", 4},
	} {
		p := netip.MustParsePrefix(change.prefix)
		for _, way := range []struct {
			name string
			f    func(netip.Prefix) (bool, error)
		}{{"added", r.Add}, {"removed", r.Remove}} {
			stores = 0
			start := time.Now()
			did, err := way.f(p)
			took := time.Since(start)
			if !did || err != nil {
				t.Fatalf("%v is not %s: %v, %v", p, way.name, did, err)
			}
			if stores > change.most {
				t.Errorf("%v %s: %d stores, and at most %d are expected", p, way.name, stores, change.most)
			}
			t.Logf("%-16v %-8s %5d stores %8.1f µs", p, way.name, stores, float64(took.Nanoseconds())/1000)
			r.Reclaim()
		}
	}
}

// Keys in a row are what a network has, and what an attacker with one prefix can get banned. Under no secret do they crowd a few lines.
func TestElementsInARowHaveASlotUnderManySecrets(t *testing.T) {
	const n = 1 << 15
	var last uint64
	for range 10 {
		for _, step := range []int{5, 8, 12, 16} { // bits from one IPv4 address to the next; 5: each has a slot of its own
			r := newRegion(t, Shape{IPv4: n, IPv6: n})
			for i := range uint64(n) {
				v := uint32(i<<step | i>>(32-step))
				a := netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
				if _, err := r.Add(netip.PrefixFrom(a, 32)); err != nil {
					t.Fatalf("after %d elements of IPv4 2^%d apart: %v", i, step, err)
				}
				b := prefix6(0x2001_0db8_0000_0000+i<<(step-5), i<<(4*step), 0, 0, 0).Addr()
				if _, err := r.Add(netip.PrefixFrom(b, 128)); err != nil {
					t.Fatalf("after %d elements of IPv6 2^%d apart: %v", i, step-5, err)
				}
			}
			last = max(last, r.longest())
		}
	}
	t.Logf("a key is at most %d lines behind its home", last)
}

// longest returns how many lines the key that is farthest from its home lies behind it.
func (r *region) longest() (lines uint64) {
	for place, own := range r.slots4.own {
		if own != 0 {
			home := r.secret.hash4(r.words[r.slots4.at+place]>>32) >> (64 - r.layout.home4)
			lines = max(lines, uint64(place/lineWords)-home)
		}
	}
	return lines
}
