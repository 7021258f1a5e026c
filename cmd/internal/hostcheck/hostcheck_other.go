//go:build !linux

package hostcheck

import (
	"runtime"

	"github.com/flowtally/flowtally/probe"
)

// Checks runs the one check for other systems.
func Checks(_, _ string) []probe.Result {
	return []probe.Result{{
		Object:  runtime.GOOS,
		Feature: "Linux",
		Answer:  probe.No,
		Reason:  "flows are counted by the Linux kernel; mirrors can be read here",
		Fix:     "a Linux host",
	}}
}
