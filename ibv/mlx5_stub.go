//go:build !linux || !cgo

package ibv

import "github.com/flowtally/flowtally/dataplane/probe"

// loadMLX5 answers no: DevX is C.
func loadMLX5(string) (mlx5, error) {
	return nil, &probe.UnsupportedError{
		Feature: "DevX", Object: "libmlx5", Reason: "built without cgo, or not for Linux",
		Fix: "build on Linux with CGO_ENABLED=1 and a C compiler",
	}
}
