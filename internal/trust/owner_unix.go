//go:build unix

package trust

import (
	"os"
	"syscall"
)

// OwnsProgram reports whether that user owns the running program, and no other user can write it. Such an owner decides
// which code runs here anyway, as of a build tree that is used with sudo.
func OwnsProgram(uid uint32) bool {
	info, err := os.Stat(thisProgram())
	if err != nil || info.Mode().Perm()&0o022 != 0 {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Uid == uid
}
