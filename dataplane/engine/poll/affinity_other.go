//go:build !linux

package poll

import "github.com/flowtally/flowtally/probe"

func pinThread(int) error { return probe.ErrNotSupported }

// CheckCPU accepts every CPU, because the poller cannot be bound to one here.
func CheckCPU(int) error { return nil }
