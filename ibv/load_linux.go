//go:build cgo

package ibv

import "path/filepath"

// shared is a shared library opened at run time.
type shared struct {
	soname  string
	install string // how to install it on a system
}

// at returns the file to open for the path in the options, and the next step if it cannot be opened. It
// returns an error if checkTrust refuses the file.
func (l shared) at(path string) (open, fix string, err error) {
	if path == "" {
		return l.soname, l.install, nil
	}

	// Give the loader the path checked by checkTrust. Behind a symbolic link, ".." means one directory
	// to the kernel and another one to filepath.
	path = filepath.Clean(path)
	return path, "name the " + l.soname + " of rdma-core, or none, for the system's", checkTrust(path)
}
