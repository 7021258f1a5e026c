//go:build !linux

package cli

import (
	"runtime"

	"github.com/flowtally/flowtally/probe"
)

// hostChecks runs the one check for other systems.
func hostChecks(_, _ string) []probe.Result {
	return []probe.Result{{
		Object:  runtime.GOOS,
		Feature: "Linux",
		Answer:  probe.No,
		Reason:  "flows are counted by the Linux kernel; mirrors can be read here",
		Fix:     "a Linux host",
	}}
}
