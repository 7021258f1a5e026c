//go:build cgo

package ibv

import "path/filepath"

// shared is a shared library that is opened at run time.
type shared struct {
	soname  string
	install string // how a system gets it
}

// at returns the file to open where the options name path, and the remedy when it cannot be opened.
// It refuses a file that checkTrust refuses.
func (l shared) at(path string) (open, fix string, err error) {
	if path == "" {
		return l.soname, l.install, nil
	}

	// The loader must see the path that checkTrust sees: behind a symbolic link ".." is another
	// directory to the kernel than to filepath.
	path = filepath.Clean(path)
	return path, "name the " + l.soname + " of rdma-core, or none, for the system's", checkTrust(path)
}
