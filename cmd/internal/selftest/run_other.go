//go:build !linux

package selftest

import (
	"context"

	"github.com/flowtally/flowtally/probe"
)

// Run is available on Linux alone.
func Run(context.Context, Options) (*Report, error) {
	return nil, &probe.UnsupportedError{Feature: "selftest", Object: "this system", Reason: "it sends and counts packets with Linux", Fix: "use a Linux host"}
}
