//go:build unix

package trust

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Reader is a user who must be able to read a file that a more privileged program opens. The zero value is a user who is not
// known.
type Reader struct {
	Known  bool // UID is set
	UID    uint32
	Groups []uint32 // all groups of the user; nil if they are not known
}

// String names the user in a message.
func (r *Reader) String() string {
	if !r.Known {
		return "every user"
	}
	return fmt.Sprintf("user %d", r.UID)
}

// may reports whether the mode lets the user read what st describes, or pass a directory on the way to it. As in the kernel,
// the first class that the user is in decides. If the class is not known, each possible one must allow it. last says that
// st is of the file to open.
func (r *Reader) may(st *unix.Stat_t, last bool) bool {
	want := uint32(0o4)
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		want = 0o1
		if last { // the names in it are read, and the files that they name
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
