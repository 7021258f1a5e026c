//go:build !linux

package poll

import "github.com/flowtally/flowtally/probe"

func pinThread(int) error { return probe.ErrNotSupported }
