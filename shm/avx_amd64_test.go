//go:build amd64 && !race

package shm

import "testing"

// setAVX2 turns the vector path on, where there is one, or off, until the test ends.
func setAVX2(t *testing.T, on bool) {
	old := haveAVX2
	t.Cleanup(func() { haveAVX2 = old })
	haveAVX2 = on && old
}
