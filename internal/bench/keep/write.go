package keep

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Check reports whether figures can be kept in dir. Call it first: measuring takes minutes.
func Check(dir string) error {
	if _, err := Read(dir); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".keep-*")
	if err != nil {
		return fmt.Errorf("keeping figures in %s: %w", dir, err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// write replaces the file at path as a whole. It belongs to the owner of its directory: make bench runs as root, in the
// checkout of a user.
func write(path string, text []byte) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".keep-*")
	if err != nil {
		return fmt.Errorf("keeping the figures: %w", err)
	}
	defer os.Remove(f.Name()) // renamed by then, unless something failed

	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(0o644), giveToOwner(f, dir), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// giveToOwner gives a file to the owner of dir. Only root can, and only root needs to.
func giveToOwner(f *os.File, dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok {
		return f.Chown(int(owner.Uid), int(owner.Gid))
	}
	return nil
}
