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

// controlDir has the sockets of root's instances. It is outside /run/flowtally, so that a container with that directory
// can read the mirrors but not change the flows.
const controlDir = "/run/flowtally-control"

// ControlPath returns the path for [ListenControl]: the usual control socket of an instance served by this process. An
// empty name means "default".
//
// The socket is in /run/flowtally-control. Users other than root have it in $XDG_RUNTIME_DIR/flowtally-control, if they
// have such a directory and do not own /run/flowtally-control. Set-user-ID and set-group-ID programs ignore the variable.
// Programs with file capabilities use it, because they run as a user who cannot create /run/flowtally-control.
func ControlPath(instance string) string {
	dir, uid := trust.RuntimeDirUnlessSetID("flowtally-control"), os.Geteuid()
	if uid != 0 && dir != "" && ownedBy(filepath.Dir(dir), uid) && !ownedBy(controlDir, uid) {
		return socketIn(dir, instance)
	}
	return socketIn(controlDir, instance)
}

// FindControl returns the path for [Dial]: the control socket of the user's own instance, or of root's instance if the user
// has none of that name.
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

// privateDir creates dir, or checks that no other user can change the files in an existing one.
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
		return privateDir(dir) // another instance has removed it on its way out
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

// checkPrivate checks that only the user of this process can change the files of the directory.
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
