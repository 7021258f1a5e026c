package xdp

import (
	"testing"
	"time"

	"github.com/flowtally/flowtally/xdp"
)

// An interface moves to XDP once: when the holder has left the hook, and the hook was free for 30 s. An interface without a holder
// stays with TCX, unless an earlier process has attached the program: it may have had one.
func TestCountingMovesToXDPOnceTheHookWasFreeFor30Seconds(t *testing.T) {
	holder := xdp.Holder{Text: "another program"}
	for _, c := range []struct {
		name    string
		adopted bool
		held    []bool // at each check, one a second
		after   int    // free checks behind held, until it moves; -1: it stays
	}{
		{"never held", false, nil, -1},
		{"the holder leaves", false, []bool{true}, 31},
		{"the holder leaves and comes back", false, []bool{true, false, false, false, true}, 31},
		{"adopted", true, nil, 31},
	} {
		now := time.Unix(1, 0)
		b, a := newBeside(0), xdp.Attachment{Interface: "eth0", Adopted: c.adopted}
		for _, held := range c.held {
			now = now.Add(time.Second)
			b.note(a, holder, held, now)
			if b.retakes("eth0", now) {
				t.Errorf("%s: it moves while the hook is taken", c.name)
			}
		}
		moved := 0
		for i := range 200 {
			now = now.Add(time.Second)
			b.note(a, xdp.Holder{}, false, now)
			if !b.retakes("eth0", now) {
				continue
			}
			if moved++; i+1 != c.after {
				t.Errorf("%s: it moves at check %d, want %d", c.name, i+1, c.after)
			}
		}
		if want := map[bool]int{true: 1}[c.after >= 0]; moved != want {
			t.Errorf("%s: it moves %d times, want %d", c.name, moved, want)
		}
	}
}
