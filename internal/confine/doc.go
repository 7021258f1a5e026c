// Package confine restricts this process, for good, to the files that it names. The kernel does it, by Landlock, in
// every thread and in every process that this one starts: a process that was taken over cannot lift it. Root is
// confined as any user is.
//
// A confined process connects to no TCP or UDP port, sends signals to none but its own children, and traces none.
// The kernel decides which of these it knows: Linux 5.13 has the files, 6.7 TCP, 6.10 commands to devices, 6.12 signals.
//
// A rule holds for the directory that had the name when the rule was made. A directory that is removed and made again
// is outside.
package confine

import "errors"

// ErrUnsupported: the kernel has no Landlock, or something keeps this process from using it.
var ErrUnsupported = errors.New("no confinement")

// Files are the files that a confined process keeps. Those that do not exist are left out.
type Files struct {
	Read    []string // to be read, listed and executed, with everything below them
	Write   []string // to be read and written, with everything below them that is there or is made
	Devices []string // to be read, written and commanded
	Make    []string // directories in which directories may be made and empty ones removed, and nothing else
	All     []string // to be used in every way, with everything below them
}
