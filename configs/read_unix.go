//go:build unix

package configs

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/user"
	"runtime"
	"strconv"
	"syscall"

	"github.com/flowtally/flowtally/internal/trust"
)

// opener opens files that a configuration includes.
//
// The author of the main file chooses the paths, and whoever reads it, mostly root, opens them. So an included file must be
// one that the author can read, or an error could show it to him. For root, it must also be one that no third user
// could have written.
type opener struct {
	owner  func(uid uint32) bool // whose files are trusted; nil: everybody's
	author *trust.Reader         // nil: reads with no more rights than the author has
}

// newOpener returns the opener for a main file that is open. Its owner is its author, as long as no other user can write
// the file or put another one in its place.
func newOpener(main *os.File) (*opener, error) {
	info, err := main.Stat()
	if err != nil {
		return nil, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, errors.New("no owner is known")
	}
	if os.Geteuid() != 0 {
		o := &opener{}
		if int(st.Uid) != os.Geteuid() {
			o.author = reader(st.Uid)
		}
		return o, nil
	}
	if info.Mode().Perm()&0o022 != 0 || !ownsPath(main, info, st.Uid) {
		return &opener{owner: func(uid uint32) bool { return uid == 0 }, author: &trust.Reader{}}, nil
	}
	return &opener{
		owner:  func(uid uint32) bool { return uid == 0 || uid == st.Uid },
		author: reader(st.Uid),
	}, nil
}

// ownsPath reports whether only root and that user could have chosen the file behind the path of main. A user's own
// filesystem may say that a file is root's.
func ownsPath(main *os.File, info os.FileInfo, uid uint32) bool {
	f, why, err := trust.Open(main.Name(), func(u uint32) bool { return u == 0 || u == uid })
	if err != nil || why != "" {
		return false
	}
	defer f.Close()
	found, err := f.Stat()
	return err == nil && os.SameFile(found, info) && !trust.OfUser(main)
}

// reader returns a user and the user's groups; nil for root, who reads everything.
func reader(uid uint32) *trust.Reader {
	if uid == 0 {
		return nil
	}
	r := &trust.Reader{Known: true, UID: uid}
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return r
	}
	ids, err := u.GroupIds()
	if err != nil {
		return r
	}
	for _, id := range ids {
		if gid, err := strconv.ParseUint(id, 10, 32); err == nil {
			r.Groups = append(r.Groups, uint32(gid))
		}
	}
	return r
}

// open opens a regular file or a directory. It opens no FIFO and no device, which may wait or act.
func (o *opener) open(path string) (*os.File, error) {
	if runtime.GOOS != "linux" { // where the walk itself opens what it finds
		if info, err := os.Stat(path); err != nil || !info.IsDir() && !info.Mode().IsRegular() {
			return nil, cmp.Or(err, errIrregular)
		}
	}
	found, why, err := trust.OpenReadable(path, o.owner, o.author)
	if errors.Is(err, trust.ErrIrregular) {
		return nil, errIrregular
	}
	if err != nil {
		return nil, err
	}
	if why != "" {
		return nil, fmt.Errorf("%w: %s", errUntrusted, why)
	}
	defer found.Close()

	switch made, err := trust.OfKernel(found); {
	case err != nil:
		return nil, err
	case made:
		return nil, errOfKernel
	}
	return trust.Reopen(found)
}
