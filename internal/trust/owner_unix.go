//go:build unix

package trust

import (
	"os"
	"syscall"
)

// OwnsProgram reports whether the user owns the running program and nobody else can write it. It is safe to trust such a
// user, who could change the program itself. The common case is sudo in a build tree.
func OwnsProgram(uid uint32) bool {
	info, err := os.Stat(thisProgram())
	if err != nil || info.Mode().Perm()&0o022 != 0 {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Uid == uid
}
