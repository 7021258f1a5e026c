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

// opener opens included files safely.
//
// The author of the main file chooses the paths, but this process, often root, opens them. Two rules follow. The author
// must be able to read an included file; otherwise an error message could disclose its contents. And if this process is
// root, no third user may be able to write the file.
type opener struct {
	owner  func(uid uint32) bool // users whose files are trusted; nil means all
	author *trust.Reader         // must be able to read each file; nil if the author can read all that this process can
}

// newOpener returns the opener for an open main file. The owner of the file is its author, unless others could have written
// or replaced it. Then the author is unknown, and can read only what everybody can.
func newOpener(main *os.File) (*opener, error) {
	info, err := main.Stat()
	if err != nil {
		return nil, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, fmt.Errorf("the owner of %s is unknown, so the files that it includes cannot be checked: put them into one file", main.Name())
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

// ownsPath reports whether only root and the user can decide which file the path of main leads to. It returns false for file
// systems that a user provides, such as FUSE, because they can lie about owners.
func ownsPath(main *os.File, info os.FileInfo, uid uint32) bool {
	f, why, err := trust.Open(main.Name(), func(u uint32) bool { return u == 0 || u == uid })
	if err != nil || why != "" {
		return false
	}
	defer f.Close()
	found, err := f.Stat()
	return err == nil && os.SameFile(found, info) && !trust.OfUser(main)
}

// reader returns a user with all groups, or nil for root, who can read everything.
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

// open opens a regular file or a directory. It never opens a FIFO or a device, where even opening can block or have effects.
func (o *opener) open(path string) (*os.File, error) {
	if runtime.GOOS != "linux" { // elsewhere trust.OpenReadable has no O_PATH, and opens whatever it finds
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
