//go:build unix

package trust

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Reader is a user who chooses a file for a more privileged program to open, and therefore must be able to read it. The zero
// value is an unknown user.
type Reader struct {
	Known  bool // UID is set
	UID    uint32
	Groups []uint32 // all groups of the user; nil if unknown
}

// String names the user in a message.
func (r *Reader) String() string {
	if !r.Known {
		return "every user"
	}
	return fmt.Sprintf("user %d", r.UID)
}

// may reports whether the mode in st lets the user read the file, if last is set, or pass through a directory on the way to
// it. Like the kernel, it uses the bits of the owner, the group or others, whichever applies first. If it cannot tell,
// all that might apply must allow it.
func (r *Reader) may(st *unix.Stat_t, last bool) bool {
	want := uint32(0o4)
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		want = 0o1
		if last { // the caller lists the directory and opens its files
			want = 0o5
		}
	}

	mode := uint32(st.Mode)
	owner := mode>>6&want == want
	group := mode>>3&want == want
	other := mode&want == want

	switch {
	case !r.Known:
		return owner && group && other
	case r.UID == 0:
		return true
	case r.UID == st.Uid:
		return owner
	case r.Groups == nil:
		return group && other
	case slices.Contains(r.Groups, st.Gid):
		return group
	}
	return other
}
