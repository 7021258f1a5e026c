package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/flowtally/flowtally/ibv/flexio"
	"github.com/flowtally/flowtally/internal/lab/need"
)

// ringStep is a call of Count: the device has completed so many operations in all, and ibv_poll_cq has returned so many since the last call.
type ringStep struct {
	completed uint32
	polled    int
	title     bool // the last entry is the title of a compressed block that is not valid
}

// The counters of a ring, in Go and in C, agree: after entries that were written over before they were counted they report
// the number once, and go on behind them.
func TestRingCountersGoOnAfterAMiss(t *testing.T) {
	need.Tool(t, "cc")
	bin := filepath.Join(t.TempDir(), "ring")
	args := []string{"-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-I../../shm/include", "-o", bin, "testdata/ring.c"}
	if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, tt := range []struct {
		name       string
		compressed bool
		steps      []ringStep
		want       string // of each step: the result, the words, the missed completions, those that can be polled
	}{
		{"no miss", false, []ringStep{{3, 0, false}, {8, 3, false}, {13, 5, false}, {13, 5, false}}, "ok 3 0 0 3\nok 7 1 0 5\nok 12 1 0 5\nok 12 1 0 0\n"},
		{"a part of a round", false, []ringStep{{3, 0, false}, {13, 13, false}, {15, 2, false}, {17, 2, false}, {20, 0, false}, {20, 3, false}},
			"ok 3 0 0 3\nmissed 3 0 10 0\nok 5 0 10 0\nok 6 1 10 0\nok 9 1 10 3\nok 9 1 10 0\n"},
		{"two rounds", false, []ringStep{{3, 0, false}, {24, 20, false}, {26, 4, false}}, "ok 3 0 0 3\nmissed 6 1 17 4\nok 8 1 17 2\n"},
		{"and again", false, []ringStep{{8, 0, false}, {20, 20, false}, {40, 20, false}, {41, 1, false}},
			"ok 7 1 0 8\nmissed 7 1 12 0\nmissed 7 1 32 0\nok 8 1 32 0\n"},
		{"a block that is not valid", true, []ringStep{{3, 0, false}, {5, 3, true}, {30, 25, false}}, "ok 3 0 0 3\ncorrupt 4 0 0 1\ncorrupt 4 0 0 0\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := make([]byte, 9*64)
			at := int(-uintptr(unsafe.Pointer(&b[0])) % 64)
			mem := b[at : at+8*64]
			o := flexio.RingOptions{}
			cc := exec.Command(bin)
			if tt.compressed {
				o = flexio.RingOptions{Compression: flexio.Basic, Format: flexio.MiniHash, Expand: true}
				cc.Args = append(cc.Args, "compressed")
			}
			ring, err := flexio.NewRing(mem, o)
			if err != nil {
				t.Fatal(err)
			}
			ring.Init()
			var done, failed uint64
			counter := flexio.NewRingCounter(ring, func(c, e uint64) { done, failed = done+c, failed+e }, nil)
			var inC, got bytes.Buffer
			completed, ready := uint32(0), 0
			for _, s := range tt.steps {
				for ; completed < s.completed; completed++ {
					writeEntry(mem[completed%8*64:][:64], completed, s.title && completed+1 == s.completed)
				}
				_ = binary.Write(&inC, binary.NativeEndian, int32(s.polled))
				inC.Write(mem)
				missed := counter.Missed()
				n, err := counter.Count(s.polled)
				ready = max(0, ready+n+int(counter.Missed()-missed)-s.polled)
				result := "ok"
				switch {
				case errors.Is(err, flexio.ErrCorrupt):
					result = "corrupt"
				case errors.Is(err, flexio.ErrMissed):
					result = "missed"
				case err != nil:
					t.Fatal(err)
				}
				fmt.Fprintln(&got, result, done, failed, counter.Missed(), ready)
			}
			if diff := cmp.Diff(tt.want, got.String()); diff != "" {
				t.Errorf("Go: -want +got:\n%s", diff)
			}
			cc.Stdin = &inC
			out, err := cc.CombinedOutput()
			if diff := cmp.Diff(tt.want, string(out)); diff != "" || err != nil {
				t.Errorf("C (%v): -want +got:\n%s", err, diff)
			}
		})
	}
}

// writeEntry writes the entry of completion i, as the device does: each eighth is an error, in slot 7.
func writeEntry(e []byte, i uint32, title bool) {
	clear(e)
	e[63] = byte(i / 8 & 1)
	switch {
	case title: // of a block of no entries
		e[63] |= 0x0c
	case i%8 == 7:
		e[63] |= 0xd0
	}
}
