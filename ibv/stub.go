//go:build !linux || !cgo

package ibv

import "github.com/flowtally/flowtally/probe"

// loadVerbs returns an unsupported error: verbs need cgo.
func loadVerbs(string) (verbs, error) {
	return nil, &probe.UnsupportedError{
		Feature: "RDMA verbs", Object: "libibverbs", Reason: "built without cgo, or not for Linux",
		Fix: "build on Linux with CGO_ENABLED=1 and a C compiler",
	}
}
