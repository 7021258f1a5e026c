//go:build !linux

package poll

import "github.com/flowtally/flowtally/probe"

func pinThread(int) error { return probe.ErrNotSupported }

// CheckCPU accepts every CPU: none is bound to.
func CheckCPU(int) error { return nil }
