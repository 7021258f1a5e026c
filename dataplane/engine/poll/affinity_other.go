//go:build !linux

package poll

import "github.com/flowtally/flowtally/dataplane/probe"

func pinThread(int) error { return probe.ErrNotSupported }
