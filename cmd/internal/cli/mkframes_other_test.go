//go:build !linux

package cli

// sendFrames is for scripts that run on Linux.
func sendFrames() {}
