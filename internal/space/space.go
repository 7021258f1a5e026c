// Package space has the type of a function that reserves space for a file. Tests replace fallocate(2) by another, to fill the file
// system or to fail.
package space

import "os"

// Reserve appends n zero bytes to f, which must end at off, and reserves their space. A later store to the mapped file must not
// find the file system full.
type Reserve func(f *os.File, off, n int64) error
