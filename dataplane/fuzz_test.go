package dataplane_test

import (
	"errors"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
)

// A parsed address validates, and its text parses as the same address.
func FuzzQueuePairAddress(f *testing.F) {
	f.Add("gid=fe80::5054:ff:fe12:3456,qpn=17,psn=4660,addr=0x7f2a40000000,rkey=0x1f2")
	f.Add("lid=3,qpn=0x11,qkey=0x80000000")
	f.Add("gid=::ffff:192.0.2.1,qpn=2,")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := dataplane.ParseQueuePairAddress(text)
		if err != nil {
			if !errors.Is(err, dataplane.ErrInvalid) || a != (dataplane.QueuePairAddress{}) {
				t.Fatalf("%q: %+v, %v; want nothing, and an error that satisfies ErrInvalid", text, a, err)
			}
			return
		}
		if err := a.Validate(); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if back, err := dataplane.ParseQueuePairAddress(a.String()); err != nil || back != a {
			t.Fatalf("%q is written as %s, which reads back as %+v, %v", text, a, back, err)
		}
	})
}
