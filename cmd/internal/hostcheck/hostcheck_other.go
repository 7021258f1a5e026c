//go:build !linux

package hostcheck

import (
	"runtime"

	"github.com/flowtally/flowtally/probe"
)

// Checks says that counting needs Linux.
func Checks(_, _ string) []probe.Result {
	return []probe.Result{{
		Object:  runtime.GOOS,
		Feature: "Linux",
		Answer:  probe.No,
		Reason:  "flows are counted by the Linux kernel; mirrors can be read here",
		Fix:     "a Linux host",
	}}
}
