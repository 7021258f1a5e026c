//go:build unix

package shm

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/trust"
)

// The directories of mirrors, which docs/mirror-format.md specifies. Only root can make runDir. Any user can make shmDir, and
// can fill its tmpfs.
const (
	runDir = "/run/flowtally"
	shmDir = "/dev/shm/flowtally"
)

// userName is the name of our directory in a user's runtime directory.
const userName = "flowtally"

// Dir returns the directory in which this process makes a mirror if its Options name no path. It is the first of these:
//   - /run/flowtally, if it is on a tmpfs, and if this user is root or owns the directory;
//   - $XDG_RUNTIME_DIR/flowtally, if this user is not root and owns $XDG_RUNTIME_DIR, and it is on a tmpfs;
//   - /dev/shm/flowtally.
func Dir() string {
	uid := os.Geteuid()
	if (uid == 0 || ownedBy(runDir, uid)) && onTmpfs(runDir) {
		return runDir
	}
	if dir := trust.RuntimeDir(userName); dir != "" && uid != 0 && ownedBy(filepath.Dir(dir), uid) && onTmpfs(dir) {
		return dir
	}
	return shmDir
}

// DefaultPath returns the path at which this process makes the mirror of an instance if its Options name none: a file in
// Dir. An empty instance means "default". Locate also finds the mirrors of other users.
func DefaultPath(instance string) string { return filepath.Join(Dir(), fileName(instance)) }

func fileName(instance string) string { return cmp.Or(instance, "default") + ".mirror" }

// Locate returns the path of the mirror of an instance, for OpenReader. An empty instance means "default". Locate looks in
// /run/flowtally, /dev/shm/flowtally and $XDG_RUNTIME_DIR/flowtally, in this order, and skips a directory that belongs to
// a user whom o does not trust.
//
// It returns the first mirror with a living writer and an owner whom o trusts. If no writer is alive, it returns the first
// mirror with such an owner. If there is none, it returns the first file of that name, for which OpenReader returns the reason.
// Without any such file, the error satisfies fs.ErrNotExist, or ErrPermission if the file is, or may be, in a directory that was
// skipped.
func Locate(instance string, o ReaderOptions) (string, error) {
	name := fileName(instance)
	if strings.ContainsAny(name, "/\x00") {
		return "", fmt.Errorf("instance %q: locating mirror: the name contains a slash or a zero byte; OpenPath opens a mirror by its path: %w", instance, ErrInvalid)
	}
	dirs := []string{runDir, shmDir}
	if dir := trust.RuntimeDir(userName); dir != "" {
		dirs = append(dirs, dir)
	}

	var dead, broken string // the first path of each
	var skipped error       // why the first directory was skipped
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		var st unix.Stat_t
		if unix.Lstat(dir, &st) != nil {
			continue
		}
		if err := o.trustDir(dir, &st); err != nil {
			// Ignore the directory if it lacks the file, because any user can make an empty /dev/shm/flowtally.
			if unix.Lstat(path, &st) != unix.ENOENT {
				skipped = cmp.Or(skipped, err)
			}
			continue
		}

		r, err := OpenReader(path, o)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				broken = cmp.Or(broken, path)
			}
			continue
		}
		alive := r.Status().Alive
		r.Close()
		if alive {
			return path, nil
		}
		dead = cmp.Or(dead, path)
	}

	switch path := cmp.Or(dead, broken); {
	case path != "":
		return path, nil
	case skipped != nil:
		return "", skipped
	}
	return "", fmt.Errorf("instance %s: locating mirror: no file %s in %s: %w: start its writer (flowtally run), or open the file by its path",
		cmp.Or(instance, "default"), name, strings.Join(dirs, ", "), fs.ErrNotExist)
}
