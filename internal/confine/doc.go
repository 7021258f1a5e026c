// Package confine restricts this process to a list of files, irreversibly, by Landlock. The kernel enforces it for all
// threads and for all processes started later, even those of root. Code that takes over the process cannot lift it.
//
// A confined process can also not connect to TCP or UDP ports, and can signal and trace only its own children. Older
// kernels enforce less: Linux 5.13 restricts files, 6.7 TCP, 6.10 ioctl on devices and 6.12 signals.
//
// Note that a rule belongs to the directory that existed when the rule was made. If somebody removes the directory and
// creates it again, the new one is out of reach.
package confine

import "errors"

// ErrUnsupported means that the kernel has no Landlock, or that something, such as a seccomp filter, forbids its use.
var ErrUnsupported = errors.New("no confinement")

// Files has the files that a confined process may use, together with everything below directories. Missing files are
// ignored.
type Files struct {
	Read    []string // to read, list and execute
	Write   []string // to read, write, create and remove
	Devices []string // to read, write and control by ioctl
	Make    []string // to create and remove subdirectories only
	All     []string // to use in any way
}
