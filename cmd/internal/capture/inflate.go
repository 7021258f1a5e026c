package capture

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// ErrInflated: decompressing the file yields far more than any honest capture would.
var ErrInflated = errors.New("the capture grows too much when it is decompressed")

// Limits against decompression bombs. The first freeSize bytes may have any ratio. Beyond them, gzip shrinks captures by
// a factor of a few to some tens, and a bomb by about a thousand. maxRatio separates the two.
const (
	freeSize = 8 << 20
	maxRatio = 200
)

// counted counts the bytes read from it.
type counted struct {
	io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// inflater decompresses a gzip file within the limits.
type inflater struct {
	z    *gzip.Reader
	from *counted // the compressed bytes
	n    int64    // decompressed bytes so far
	free int64    // freeSize, or less in tests
}

func newInflater(r io.Reader, free int64) (*inflater, error) {
	from := &counted{Reader: r}
	z, err := gzip.NewReader(from)
	return &inflater{z: z, from: from, free: free}, err
}

func (i *inflater) Read(p []byte) (int, error) {
	n, err := i.z.Read(p)
	i.n += int64(n)
	if i.n > i.free && i.n > maxRatio*i.from.n {
		return 0, fmt.Errorf("%w: %d bytes of it are %d already", ErrInflated, i.from.n, i.n)
	}
	return n, err
}
