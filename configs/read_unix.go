//go:build unix

package configs

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/trust"
)

// opener opens files that a configuration includes.
type opener struct {
	owner uint32 // of the main file
}

// newOpener returns the opener for a main file. Its owner decides on the configuration anyway, as long as no other
// user can write the file.
func newOpener(main string) (*opener, error) {
	o := &opener{}
	info, err := os.Stat(main)
	if err != nil {
		return nil, err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().Perm()&0o022 == 0 {
		o.owner = st.Uid
	}
	return o, nil
}

// open opens a regular file or a directory. It opens no FIFO and no device, which may wait or act. For root it refuses a
// path that a user other than root and the owner of the main file could have written.
func (o *opener) open(path string) (*os.File, error) {
	if info, err := os.Stat(path); err != nil || !info.IsDir() && !info.Mode().IsRegular() {
		return nil, cmp.Or(err, errIrregular)
	}
	if os.Geteuid() != 0 {
		return os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	}
	found, why, err := trust.Open(path, func(uid uint32) bool { return uid == 0 || uid == o.owner })
	if err != nil {
		return nil, err
	}
	if why != "" {
		return nil, fmt.Errorf("%w: %s", errUntrusted, why)
	}
	defer found.Close()
	if info, err := found.Stat(); err != nil || !info.IsDir() && !info.Mode().IsRegular() {
		return nil, cmp.Or(err, errIrregular)
	}
	// The descriptor names the file, whatever the path names by now.
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", found.Fd()), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) { // no /proc, or no Linux
		return os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	}
	return f, err
}
