package flow

import (
	"testing"

	"pgregory.net/rapid"
)

func TestFirstFromFindsTheSmallestMaskedNumber(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lo, mask := rapid.Uint16().Draw(t, "lo"), rapid.Uint16().Draw(t, "mask")
		value := rapid.Uint16().Draw(t, "value") & mask
		want, there := uint16(0), false
		for v := uint32(lo); v <= 0xffff && !there; v++ {
			if uint16(v)&mask == value {
				want, there = uint16(v), true
			}
		}
		if got, ok := firstFrom(lo, value, mask); got != want || ok != there {
			t.Fatalf("from %#x, %#x/%#x: %#x %v, want %#x %v", lo, value, mask, got, ok, want, there)
		}
	})
}
