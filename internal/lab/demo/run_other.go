//go:build !linux

package demo

import (
	"context"
	"runtime"

	"github.com/flowtally/flowtally/probe"
)

// Run needs Linux.
func Run(context.Context, Options) (Report, error) {
	return Report{}, &probe.UnsupportedError{
		Feature: "demo", Reason: "network namespaces, veth and XDP are Linux's, this is " + runtime.GOOS,
		Fix: "run it on a Linux machine, as root",
	}
}
