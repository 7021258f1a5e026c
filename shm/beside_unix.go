//go:build unix

package shm

import (
	"strings"

	"github.com/flowtally/flowtally/shm/words"
)

// beside is the path of a file that goes with the mirror at path: NAME.suffix, where the mirror is NAME.mirror.
func beside(path, suffix string) string { return strings.TrimSuffix(path, ".mirror") + "." + suffix }

// Files are all files that a writer of the mirror at path may leave, the mirror first. A program that removes a mirror
// removes them all, once the writer has ended.
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

// lockPath is the file whose lock the writer of path holds.
func lockPath(path string) string { return beside(path, "lock") }
