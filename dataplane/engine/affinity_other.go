//go:build !linux

package engine

import "github.com/flowtally/flowtally/dataplane/probe"

func pinThread(int) error { return probe.ErrNotSupported }
