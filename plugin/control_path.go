package plugin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/internal/trust"
)

// controlDir holds the sockets of root's instances. It is not below the mirrors' /run/flowtally: a
// container that is given that directory to read the mirrors gets no socket with it.
const controlDir = "/run/flowtally-control"

// ControlPath returns the control socket of an instance that this process serves; "" means "default".
//
// It is in /run/flowtally-control. For a user who is not root, has a runtime directory
// ($XDG_RUNTIME_DIR) and does not own /run/flowtally-control, it is in flowtally-control in that directory.
// A set-user-ID or set-group-ID program ignores the variable. One with file capabilities does not: it runs as its caller,
// and that user cannot make /run/flowtally-control.
func ControlPath(instance string) string {
	dir, uid := trust.RuntimeDirUnlessSetID("flowtally-control"), os.Geteuid()
	if uid != 0 && dir != "" && ownedBy(filepath.Dir(dir), uid) && !ownedBy(controlDir, uid) {
		return socketIn(dir, instance)
	}
	return socketIn(controlDir, instance)
}

// FindControl returns the control socket of an instance, for Dial: the socket of this user's instance, or of root's
// instance if this user runs no instance of that name.
func FindControl(instance string) string {
	path := ControlPath(instance)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return socketIn(controlDir, instance)
	}
	return path
}

// socketIn returns the path of an instance's socket in a directory.
func socketIn(dir, instance string) string {
	if instance == "" {
		instance = "default"
	}
	return filepath.Join(dir, instance+".sock")
}

// ownedBy reports whether a path exists and belongs to a user.
func ownedBy(path string, uid int) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	owner, known := ownerOf(info)
	return known && owner == uid
}

// privateDir makes dir, or checks that no other user can change its files.
func privateDir(dir string) (made bool, err error) {
	if err := trustDir(filepath.Dir(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	err = os.Mkdir(dir, 0o700)
	switch {
	case err == nil:
		return true, os.Chmod(dir, 0o700) // the umask may have taken bits
	case errors.Is(err, fs.ErrPermission):
		return false, fmt.Errorf("%w: %w: run as root, or name a socket in a directory of yours", dataplane.ErrPermission, err)
	case !errors.Is(err, fs.ErrExist):
		return false, err
	}

	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return privateDir(dir) // an instance that ended has removed it
	}
	if err != nil {
		return false, err
	}
	if err := checkPrivate(dir, info); err != nil {
		return false, err
	}
	if dir == filepath.Dir(ControlPath("")) && info.Mode().Perm() != 0o700 {
		return false, os.Chmod(dir, 0o700) // systemd makes it with the mode of the mirrors' directory
	}
	return false, nil
}

// checkPrivate returns an error if a user other than this process's own can change the files of the directory.
func checkPrivate(dir string, info fs.FileInfo) error {
	if !info.IsDir() {
		return fmt.Errorf("%w: %s is not a directory (%s): remove it, or name a socket elsewhere", dataplane.ErrPermission, dir, info.Mode().Type())
	}

	uid, known := ownerOf(info)
	own := !known || uid == os.Geteuid()
	writable := info.Mode().Perm()&0o022 != 0
	switch {
	case !own && uid == 0:
		return fmt.Errorf("%w: directory %s belongs to root: run as root, or name a socket in a directory of yours", dataplane.ErrPermission, dir)
	case !own:
		return fmt.Errorf("%w: directory %s belongs to user %d, not to %d: run as that user, or name a socket elsewhere",
			dataplane.ErrPermission, dir, uid, os.Geteuid())
	case writable && info.Mode()&fs.ModeSticky != 0: // such as /tmp, whose mode other programs rely on
		return fmt.Errorf("%w: directory %s belongs to all users: name a socket in a directory of its own, as %s",
			dataplane.ErrPermission, dir, filepath.Join(dir, "flowtally", "control.sock"))
	case writable:
		return fmt.Errorf("%w: directory %s (mode %04o) can be written by others: chmod go-w %s",
			dataplane.ErrPermission, dir, info.Mode().Perm(), dir)
	}
	return nil
}
