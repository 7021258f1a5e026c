//go:build !unix

package configs

import "os"

// opener opens files that a configuration includes.
type opener struct{}

func newOpener(*os.File) (*opener, error) { return &opener{}, nil }

func (o *opener) open(path string) (*os.File, error) { return os.Open(path) }
