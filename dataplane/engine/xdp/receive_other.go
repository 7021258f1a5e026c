//go:build !linux

package xdp

import "errors"

// receiveOf is not supported here.
func receiveOf(string) (receive, error) { return receive{}, errors.ErrUnsupported }
