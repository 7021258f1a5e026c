// Package space names what reserves the space of a file, for a test that stands in for the file system.
package space

import "os"

// Reserve makes f, which ends at off, longer by n bytes that are zero. They have space on the disk: no store to the mapped
// file finds the disk full.
type Reserve func(f *os.File, off, n int64) error
