package tree

import (
	"testing"

	"pgregory.net/rapid"
)

// For ranges and prefixes the test with bounds is exact. Under other masks it lets every packet through. RangesOf recovers the ranges.
func TestBoundsTestPortsAndProtocolExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		port := rapid.OneOf(rapid.SampledFrom([]uint16{0, 1, 1023, 1024, 0xfffe, 0xffff}), rapid.Uint16())
		var p Ranges
		var key, mask, packet uint64
		prefix := true
		for i, r := range [2]*Range{&p.Src, &p.Dst} {
			at := 48 - 16*i
			v := port.Draw(t, "port")
			packet |= uint64(v) << at
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				a, b := port.Draw(t, "first"), port.Draw(t, "last")
				if *r = (Range{min(a, b), max(a, b)}); *r == (Range{0, 0xffff}) {
					*r = Range{} // the same
				}
			case 1:
				m := uint64(0xffff) << rapid.IntRange(0, 15).Draw(t, "free") & 0xffff
				mask |= m << at
				key |= uint64(rapid.SampledFrom([]uint16{v, port.Draw(t, "key")}).Draw(t, "of")) & m << at
			case 2:
				m := uint64(port.Draw(t, "mask"))
				mask, key, prefix = mask|m<<at, key|uint64(v)&m<<at, prefix && m == 0
			}
		}
		proto := rapid.Uint64Range(0, 255).Draw(t, "proto")
		packet |= proto << 24
		if rapid.Bool().Draw(t, "with proto") {
			mask |= 0xff << 24
			key |= rapid.SampledFrom([]uint64{proto, 6, 17}).Draw(t, "rule's proto") << 24
		}
		bounds := AppendBounds(nil, be64(key), be64(mask), p)
		if got := RangesOf(bounds, be64(mask)); got != p {
			t.Fatalf("ranges %v of bounds of %v", got, p)
		}
		number := packet>>48 | packet>>7&(0xff<<17) | packet&(0xffff<<32)
		const guards = 1<<16 | 1<<25 | 1<<48
		got := ((bounds[0]-number)|(bounds[1]+number))&guards == 0
		within := func(r Range, v uint16) bool { return r == Range{} || r.First <= v && v <= r.Last }
		want := packet&mask == key && within(p.Src, uint16(packet>>48)) && within(p.Dst, uint16(packet>>32))
		if want && !got || prefix && got != want {
			t.Fatalf("packet %#x, key %#x, mask %#x, ranges %v: within bounds %v, want %v", packet, key, mask, p, got, want)
		}
	})
}
