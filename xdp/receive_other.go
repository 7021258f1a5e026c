//go:build !linux

package xdp

// ReceiveOf is not supported here.
func ReceiveOf(string) (Receive, error) { return Receive{}, supported() }
