//go:build unix

package trust

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrIrregular means that a path leads to a FIFO, a device or a socket.
var ErrIrregular = errors.New("it is neither a regular file nor a directory")

// mostLinks limits the symbolic links of a path, as in Linux.
const mostLinks = 40

// Open opens a file or directory if only trusted users could have written or replaced it. owner reports whether it trusts a
// user. Callers must use the returned descriptor instead of the path, which may lead elsewhere by the next system call. On
// Linux it is an O_PATH descriptor; see [Reopen].
//
// If the file is not trusted, f is nil, and why has the reason and a command to fix it. An error means that Open could not
// examine the path.
//
// Open walks the path from the root, one descriptor at a time, and follows symbolic links itself. The rules are:
//   - The file, every symbolic link and every directory on the way must belong to a trusted user.
//   - Only the owner may write the file.
//   - Others may write a directory only if it has the sticky bit, which keeps them from replacing entries of trusted users.
//   - The group may write a directory, as in Debian's /usr/local/bin, which is root:staff 2775.
func Open(file string, owner func(uid uint32) bool) (f *os.File, why string, err error) {
	w := &walk{owner: owner}
	return w.open(file)
}

// OpenReadable is like [Open], and also requires that reader can read the file. Otherwise why names the first directory or
// file on the way that keeps reader out. A nil owner trusts everybody, and a nil reader can read everything. OpenReadable
// fails with [ErrIrregular] if the path leads to neither a regular file nor a directory.
func OpenReadable(file string, owner func(uid uint32) bool, reader *Reader) (f *os.File, why string, err error) {
	w := &walk{owner: owner, reader: reader, regular: true}
	return w.open(file)
}

func (w *walk) open(file string) (f *os.File, why string, err error) {
	abs, err := filepath.Abs(file)
	if err != nil {
		return nil, "", err
	}
	if w.f, err = openAt(nil, "/"); err != nil {
		return nil, "", err
	}

	rest := strings.Split(abs, "/")
	for len(rest) > 0 && err == nil && why == "" {
		rest, why, err = w.step(rest)
	}
	if err == nil && why == "" {
		why, err = w.look(true)
	}
	if err != nil || why != "" {
		w.f.Close()
		return nil, why, err
	}
	return w.f, "", nil
}

// walk is the state of Open.
type walk struct {
	owner   func(uid uint32) bool // nil trusts every owner and mode
	reader  *Reader               // nil can read everything
	regular bool                  // fail with ErrIrregular

	f     *os.File // the current directory or file, not yet checked
	links int      // number of symbolic links so far
}

// step checks the current directory and enters the first of names. It returns the remaining names.
func (w *walk) step(names []string) (left []string, why string, err error) {
	name, left := names[0], names[1:]
	if name == "" || name == "." {
		return left, "", nil
	}
	if why, err := w.look(false); err != nil || why != "" {
		return nil, why, err
	}

	next := path.Join(w.f.Name(), name)
	var st unix.Stat_t
	if err := unix.Fstatat(int(w.f.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, "", &fs.PathError{Op: "stat", Path: next, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return left, "", w.enter(name)
	}

	target, why, err := w.follow(name, &st)
	if err != nil || why != "" {
		return nil, why, err
	}
	return append(target, left...), "", nil
}

// follow returns the names in the target of a symbolic link. It enters the root if the target is absolute.
func (w *walk) follow(name string, st *unix.Stat_t) (names []string, why string, err error) {
	// Check the owner of the link. step has checked the directory, so nobody else can replace the link after this.
	link := path.Join(w.f.Name(), name)
	if w.owner != nil && !w.owner(st.Uid) {
		return nil, belongs(link, "chown -h root "+Quote(link), st.Uid), nil
	}
	target, err := readLink(w.f, name)
	if err != nil {
		return nil, "", &fs.PathError{Op: "readlink", Path: link, Err: err}
	}
	w.links++
	if w.links > mostLinks {
		return nil, "", &fs.PathError{Op: "open", Path: link, Err: unix.ELOOP}
	}

	if path.IsAbs(target) {
		if err := w.enter("/"); err != nil {
			return nil, "", err
		}
	}
	return strings.Split(target, "/"), "", nil
}

// enter moves to an entry of the current directory, or to the root.
func (w *walk) enter(name string) error {
	f, err := openAt(w.f, name)
	if err != nil {
		return err
	}
	w.f.Close()
	w.f = f
	return nil
}

// look says why the current file is not trusted, or why the reader cannot read it. last says that it is the file to open,
// and not a directory on the way.
func (w *walk) look(last bool) (why string, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(w.f.Fd()), &st); err != nil {
		return "", &fs.PathError{Op: "stat", Path: w.f.Name(), Err: err}
	}

	mode := uint32(st.Mode) & 0o7777
	kind := uint32(st.Mode) & unix.S_IFMT
	switch {
	case w.regular && kind != unix.S_IFREG && kind != unix.S_IFDIR:
		return "", ErrIrregular
	case w.reader != nil && !w.reader.may(&st, last):
		return fmt.Sprintf("%s (mode %04o) cannot be read by %s", w.f.Name(), mode, w.reader), nil
	case w.reader != nil && hasAccessList(w.f):
		return fmt.Sprintf("%s has an access control list, which may keep %s out", w.f.Name(), w.reader), nil
	case w.owner == nil: // trusts everything
	case !w.owner(st.Uid):
		command := "chown root " + Quote(w.f.Name())
		if mode&othersWrite(uint32(st.Mode)) != 0 {
			command += " && chmod go-w " + Quote(w.f.Name())
		}
		return belongs(w.f.Name(), command, st.Uid), nil
	case mode&othersWrite(uint32(st.Mode)) != 0:
		return fmt.Sprintf("%s (mode %04o) can be written by others than its owner: chmod go-w %s", w.f.Name(), mode, Quote(w.f.Name())), nil
	}
	return "", nil
}

// belongs returns the reason for a path of the wrong user, with a command to fix it.
func belongs(path, command string, uid uint32) string {
	return fmt.Sprintf("%s belongs to user %d, which root does not trust: %s", path, uid, command)
}

// Command extracts the command from a reason of [Open]. It returns "" if there is none.
func Command(why string) string {
	if at := strings.LastIndex(why, ": ch"); at >= 0 { // chown or chmod
		return why[at+2:]
	}
	return ""
}

// othersWrite returns the write bits that must not be set in a mode.
func othersWrite(mode uint32) uint32 {
	switch {
	case mode&unix.S_IFMT != unix.S_IFDIR:
		return 0o022
	case mode&unix.S_ISVTX != 0:
		return 0
	}
	return 0o002
}

// openAt opens an entry of dir, or the root. It does not follow a symbolic link.
func openAt(dir *os.File, name string) (*os.File, error) {
	at, file := unix.AT_FDCWD, name
	if dir != nil && name != "/" {
		at, file = int(dir.Fd()), path.Join(dir.Name(), name)
	}
	for {
		fd, err := unix.Openat(at, name, openFlags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == nil {
			return os.NewFile(uintptr(fd), file), nil
		}
		if err != unix.EINTR {
			return nil, &fs.PathError{Op: "open", Path: file, Err: err}
		}
	}
}

func readLink(dir *os.File, name string) (string, error) {
	b := make([]byte, 4096) // PATH_MAX, which is longer than any target
	n, err := unix.Readlinkat(int(dir.Fd()), name, b)
	if err != nil {
		return "", err
	}
	return string(b[:n]), nil
}

// reopenByPath opens the path of f for reading, and fails if it leads to another file by now.
func reopenByPath(f *os.File) (*os.File, error) {
	again, err := os.OpenFile(f.Name(), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err := sameFile(f, again); err != nil {
		again.Close()
		return nil, err
	}
	return again, nil
}

// sameFile returns an error if the descriptors are of different files.
func sameFile(f, again *os.File) error {
	before, err := f.Stat()
	if err != nil {
		return err
	}
	after, err := again.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(before, after) {
		return &fs.PathError{Op: "open", Path: f.Name(), Err: unix.ESTALE}
	}
	return nil
}
