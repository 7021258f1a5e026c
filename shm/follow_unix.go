//go:build unix

package shm

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// fileID tells one file from another, as long as somebody has it mapped.
type fileID struct{ dev, ino uint64 }

// idOf answers the identity of a file whose status is st.
func idOf(st *unix.Stat_t) fileID { return fileID{dev: uint64(st.Dev), ino: st.Ino} }

// Follow answers a reader of the file that has the name now: r itself where
// that is still its own, another where a larger mirror took the name
// (Superseded, ErrSuperseded) or the file was made anew. What r handed out goes
// on with r's file. In the other one, handles of block counters are good when the
// mirror only grew; those of latency counters are looked up again, as after any
// change of Status.Generation. For a moment after Superseded the name is still r's.
func (r *Reader) Follow() (*Reader, error) {
	if r.closed.Load() {
		return nil, ErrClosed
	}
	var st unix.Stat_t
	if err := unix.Lstat(r.path, &st); err != nil {
		return nil, fmt.Errorf("%s: following mirror: %w", r.path, err)
	}
	if idOf(&st) == r.m.id {
		return r, nil
	}
	return Open(r.path, r.options)
}
