//go:build unix

package trust

import (
	"os"
	"syscall"
)

// OwnsProgram tells whether this very program belongs to that user, who decides
// what runs here anyway (a build tree used with sudo), and others cannot write it.
func OwnsProgram(uid uint32) bool {
	info, err := os.Stat(thisProgram())
	if err != nil || info.Mode().Perm()&0o022 != 0 {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Uid == uid
}
