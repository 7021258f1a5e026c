//go:build !linux || !cgo

package ibv

import "github.com/flowtally/flowtally/probe"

// loadEFA returns an unsupported error: EFA's direct verbs need cgo.
func loadEFA(_ Options, feature string) (efa, error) {
	return nil, &probe.UnsupportedError{
		Feature: feature, Object: "libefa", Reason: "built without cgo, or not for Linux",
		Fix: "build on Linux with CGO_ENABLED=1 and a C compiler",
	}
}
