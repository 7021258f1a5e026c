//go:build !linux

package ibvtest

import "errors"

func mkfifo(string) error { return errors.ErrUnsupported }
