//go:build unix

package shm

import (
	"strings"

	"github.com/flowtally/flowtally/shm/words"
)

// beside returns the path of a file beside the mirror at path: NAME.suffix, if the mirror is NAME.mirror.
func beside(path, suffix string) string { return strings.TrimSuffix(path, ".mirror") + "." + suffix }

// Files returns the paths of all files that a writer of the mirror at path may leave, the mirror first. To remove a mirror by
// hand, remove all of them, after the writer has ended. Remove does that.
func Files(path string) []string {
	return []string{
		path,
		lockPath(path),
		waitPath(path),
		devicePath(path),
		LivePath(path),
		words.Path(path),
	}
}

// lockPath returns the path of the file that the writer of path locks.
func lockPath(path string) string { return beside(path, "lock") }
