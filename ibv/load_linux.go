//go:build cgo

package ibv

import "path/filepath"

// shared is a shared library that is opened at run time.
type shared struct {
	soname  string
	install string // how a system gets it
}

// at returns the file to open where the options name path, and the remedy when it cannot be opened.
func (l shared) at(path string) (open, fix string, err error) {
	if path == "" {
		return l.soname, l.install, nil
	}
	path = filepath.Clean(path) // as checkTrust sees it: behind a symbolic link the loader's ".." is another directory
	return path, "name the " + l.soname + " of rdma-core, or none, for the system's", checkTrust(path)
}
