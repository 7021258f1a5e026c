//go:build unix

package shm

import "fmt"

// openView maps the mirror at path for reading, and returns which file that is.
func openView(path string, o ReaderOptions) (v *view, id fileID, err error) {
	f, st, err := openTrusted(path, o)
	if err != nil {
		return nil, id, err
	}
	err = Guard(func() (err error) {
		v, err = attach(fileStore{File: f})
		return err
	})
	if err != nil {
		f.Close()
		return nil, id, fmt.Errorf("%s: opening mirror: %w", path, err)
	}
	return v, idOf(st), nil
}
