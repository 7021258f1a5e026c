package shm

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/golden"
)

const (
	goldenDevices = "testdata/v1-device.mirror.gz"
	goldenSegment = "testdata/v1-device.device"
)

// A mirror and its device segment of format version 1 must open for ever, and this
// code must write the same bytes if the same calls are made.
func TestDeviceSegmentOfVersion1OpensForEver(t *testing.T) {
	mirror, segment, hs := deviceBytes(t)
	if *update {
		writeGolden(t, goldenDevices, mirror)
		if err := os.WriteFile(goldenSegment, segment, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file := golden.Unpack(t, goldenDevices)
	words, err := os.ReadFile(goldenSegment)
	if err != nil {
		t.Fatal(err)
	}
	path := mirrorPath(t)
	if err := errors.Join(os.WriteFile(path, file, 0o644), os.WriteFile(devicePath(path), words, 0o644)); err != nil {
		t.Fatal(err)
	}
	r := mustOpen(t, path)
	for i, want := range [][2]uint64{{9, 0}, {1009, 1}, {2009, 2}, {3009, 3}} {
		wantDevice(t, mustDevice(t, r, hs[i]), want[0], want[1])
	}
	checkFile(t, path)
	wantSame(t, file, mirror)
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
