//go:build unix

package shm

import "fmt"

// openView attaches to the mirror at path, and returns which file that is.
func openView(path string, o ReaderOptions) (v *view, id fileID, err error) {
	f, st, err := openTrusted(path, o)
	if err != nil {
		return nil, id, err
	}
	if err = Guard(func() (err error) { v, err = attach(fileStore{f, false}); return err }); err != nil {
		f.Close()
		return nil, id, fmt.Errorf("%s: opening mirror: %w", path, err)
	}
	return v, idOf(st), nil
}
