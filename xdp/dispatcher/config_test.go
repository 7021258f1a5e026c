package dispatcher

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

func TestConfigIsReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := make([]member, rapid.IntRange(0, mostMembers).Draw(t, "members"))
		for i := range members {
			members[i] = member{Priority: rapid.Uint32().Draw(t, "priority"), Actions: rapid.Uint32().Draw(t, "actions"), Frags: rapid.Bool().Draw(t, "frags")}
		}
		c := configOf(rapid.SampledFrom([]uint8{oldVersion, newVersion}).Draw(t, "version"), members)
		if got, err := decode(c.encode()); err != nil || got != *c {
			t.Errorf("read %+v, %v, want %+v", got, err, *c)
		}
	})
}

func TestUnknownConfigIsRefused(t *testing.T) {
	known := func(version uint8) []byte { return configOf(version, make([]member, 2)).encode() }
	changed := func(b []byte, at int, to byte) []byte { b[at] = to; return b }
	for name, value := range map[string][]byte{
		"empty":             nil,
		"version 1":         make([]byte, 84),
		"no magic":          changed(known(2), 0, 0),
		"a later version":   changed(known(3), 1, 4),
		"11 programs":       changed(known(2), 2, 11),
		"bound to a device": changed(known(3), 124, 1),
		"cut":               known(3)[:125],
		"longer":            append(known(2), 0),
	} {
		if _, err := decode(value); !errors.Is(err, errConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n, m := len(known(2)), len(known(3)); n != 124 || m != 128 {
		t.Errorf("%d and %d bytes, want 124 and 128 as in libxdp", n, m)
	}
}
