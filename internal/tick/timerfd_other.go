//go:build !linux

package tick

import "errors"

func newTimer() (timer, error) { return nil, errors.ErrUnsupported }
