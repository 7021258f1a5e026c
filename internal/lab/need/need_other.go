//go:build !linux

package need

import (
	"errors"
	"runtime"
)

var errNotLinux = errors.New("needs Linux, this is " + runtime.GOOS)

func haveCap(string) error   { return errNotLinux }
func haveBPF() error         { return errNotLinux }
func haveNetns() error       { return errNotLinux }
func haveTCX() error         { return errNotLinux }
func haveIPsec() error       { return errNotLinux }
func haveRDMACore() error    { return errNotLinux }
func bpffs() (string, error) { return "", errNotLinux }
