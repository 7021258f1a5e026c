//go:build !linux

package selftest

import (
	"context"

	"github.com/flowtally/flowtally/probe"
)

// Run needs Linux.
func Run(context.Context, Options) (*Report, error) {
	return nil, &probe.UnsupportedError{Feature: "selftest", Object: "this system", Reason: "it sends and counts packets with Linux", Fix: "use a Linux host"}
}
