//go:build !linux

package words

import "github.com/flowtally/flowtally/probe"

type client struct{}

func (*client) end() {}

func (*Set) listen() error { return probe.ErrNotSupported }
