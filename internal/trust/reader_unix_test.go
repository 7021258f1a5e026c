//go:build unix

package trust

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// The first class that a user is in decides what he reads, and each possible one if the class is not known.
func TestFirstMatchingClassDecidesWhatAReaderMayRead(t *testing.T) {
	const dir = unix.S_IFDIR
	for _, c := range []struct {
		reader   Reader
		uid, gid uint32
		mode     uint32
		last     bool
		want     bool
	}{
		{Reader{Known: true, UID: 0}, 7, 7, 0, true, true},
		{Reader{Known: true, UID: 7}, 7, 0, 0o400, true, true},
		{Reader{Known: true, UID: 7}, 7, 0, 0o044, true, false},
		{Reader{Known: true, UID: 7, Groups: []uint32{8, 9}}, 0, 9, 0o040, true, true},
		{Reader{Known: true, UID: 7, Groups: []uint32{8, 9}}, 0, 9, 0o404, true, false},
		{Reader{Known: true, UID: 7, Groups: []uint32{8, 9}}, 0, 0, 0o004, true, true},
		{Reader{Known: true, UID: 7, Groups: []uint32{8, 9}}, 0, 0, 0o640, true, false},
		{Reader{Known: true, UID: 7}, 0, 9, 0o604, true, false},
		{Reader{Known: true, UID: 7}, 0, 9, 0o644, true, true},
		{Reader{}, 0, 0, 0o644, true, true},
		{Reader{}, 0, 0, 0o604, true, false},
		{Reader{Known: true, UID: 7, Groups: []uint32{8}}, 0, 0, dir | 0o711, false, true},
		{Reader{Known: true, UID: 7, Groups: []uint32{8}}, 0, 0, dir | 0o711, true, false},
		{Reader{Known: true, UID: 7, Groups: []uint32{8}}, 0, 0, dir | 0o744, true, false},
		{Reader{Known: true, UID: 7, Groups: []uint32{8}}, 0, 0, dir | 0o744, false, false},
	} {
		var st unix.Stat_t
		st.Uid, st.Gid = c.uid, c.gid
		setMode(&st.Mode, c.mode)
		if got := c.reader.may(&st, c.last); got != c.want {
			t.Errorf("%s of groups %v, %s of user %d and group %d, last %v: %v", &c.reader, c.reader.Groups, fmt.Sprintf("%06o", c.mode), c.uid, c.gid, c.last, got)
		}
	}
}

// setMode sets a mode, whose type differs among systems.
func setMode[T ~uint16 | ~uint32](to *T, mode uint32) { *to = T(mode) }
