package flow

import (
	"testing"

	"pgregory.net/rapid"
)

func TestFirstFromFindsTheSmallestMaskedNumber(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lo, mask := rapid.Uint16().Draw(t, "lo"), rapid.Uint16().Draw(t, "mask")
		value := rapid.Uint16().Draw(t, "value") & mask
		want, there := Number{}, false
		for v := uint32(lo); v <= 0xffff && !there; v++ {
			if uint16(v)&mask == value {
				want, there = Number{Lo: uint64(v)}, true
			}
		}
		masked := Value{Value: Number{Lo: uint64(value)}, Mask: Number{Lo: uint64(mask)}}
		if got, ok := firstFrom(16, Number{Lo: uint64(lo)}, masked); got != want || ok != there {
			t.Fatalf("from %#x, %#x/%#x: %v %v, want %v %v", lo, value, mask, got, ok, want, there)
		}
	})
}
