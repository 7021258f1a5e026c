package shm

import (
	"bytes"
	"os"
	"testing"
)

const (
	goldenDevices = "testdata/v1-device.mirror"
	goldenSegment = "testdata/v1-device.device"
)

// A mirror and the words that devices wrote beside it open for ever, and this
// code writes the same bytes for the same life.
func TestGoldenDevice(t *testing.T) {
	mirror, segment, hs := deviceBytes(t)
	if *update {
		for path, b := range map[string][]byte{goldenDevices: mirror, goldenSegment: segment} {
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	r, err := Open(goldenDevices, ReaderOptions{AnyOwner: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][2]uint64{{9, 0}, {1009, 1}, {2009, 2}, {3009, 3}} {
		wantDevice(t, mustDevice(t, r, hs[i]), want[0], want[1])
	}
	ps, err := Check(goldenDevices)
	if err != nil {
		t.Error(err)
	}
	noProblems(t, ps)

	file, err := os.ReadFile(goldenDevices)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range [][]byte{file, mirror} {
		v, err := attach(b)
		if err != nil {
			t.Fatal(err)
		}
		h := v.hdr
		h.createdWall, h.checksum, h.generation, h.started, h.startedWall, h.heartbeat, h.deviceGeneration = 0, 0, 0, 0, 0, 0, 0
		for i := range v.entries {
			v.entries[i].addedAt = 0
		}
	}
	if !bytes.Equal(file, mirror) {
		t.Error("the mirror is written otherwise")
	}
	words, err := os.ReadFile(goldenSegment)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range [][]byte{words, segment} {
		v, err := attachDevice(b)
		if err != nil {
			t.Fatal(err)
		}
		v.hdr.createdWall, v.hdr.checksum, v.hdr.generation = 0, 0, 0
	}
	if !bytes.Equal(words, segment) {
		t.Error("the segment is written otherwise")
	}
}
