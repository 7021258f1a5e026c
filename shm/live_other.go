//go:build !linux

package shm

import "fmt"

func dialLive(path string, _ ReaderOptions) (*liveFile, error) {
	return nil, fmt.Errorf("%s: receiving a descriptor: %w: %w", path, ErrNotSupported, ErrNoLive)
}
