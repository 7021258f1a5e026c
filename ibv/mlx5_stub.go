//go:build !linux || !cgo

package ibv

import "github.com/flowtally/flowtally/probe"

// loadMLX5 returns an unsupported error: mlx5's direct verbs need cgo.
func loadMLX5(feature string, _ Options) (mlx5, error) {
	return nil, &probe.UnsupportedError{
		Feature: feature, Object: "libmlx5", Reason: "built without cgo, or not for Linux",
		Fix: "build on Linux with CGO_ENABLED=1 and a C compiler",
	}
}
