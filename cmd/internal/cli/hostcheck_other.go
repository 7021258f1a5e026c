//go:build !linux

package cli

import (
	"runtime"

	"github.com/flowtally/flowtally/dataplane/probe"
)

// hostChecks answers the one question that there is elsewhere.
func hostChecks(_, _ string) []probe.Result {
	return []probe.Result{{
		Object:  runtime.GOOS,
		Feature: "Linux",
		Answer:  probe.No,
		Reason:  "flows are counted by the Linux kernel; mirrors can be read here",
		Fix:     "a Linux host",
	}}
}
