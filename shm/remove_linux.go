package shm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Remove removes the mirror at path with the files beside it, and with it its totals. ErrInUse: a writer has it.
// fs.ErrNotExist: there is none.
func Remove(path string) error {
	if _, err := os.Lstat(path); err != nil {
		return fmt.Errorf("removing mirror: %w", err)
	}
	if err := refuseForeign(Options{Path: path}); err != nil {
		return fmt.Errorf("removing mirror: %w", err)
	}
	lock, err := takeLock(path, func(string) {})
	if err != nil {
		return fmt.Errorf("removing mirror: %w", err)
	}
	defer lock.Close()

	files := Files(path)
	var errs []error
	for _, file := range files {
		if file == lock.Name() {
			continue
		}
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("removing mirror: %w", err))
		}
	}
	return errors.Join(append(errs, os.Remove(lock.Name()))...) // last, while it is held: a writer that starts meanwhile sees a mirror whole or none
}
