package capture

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// ErrInflated: a small file becomes a very large one when it is decompressed.
var ErrInflated = errors.New("the capture grows too much when it is decompressed")

// A gzip file may be freely larger up to freeSize, and maxRatio times its compressed size beyond: captures are
// compressed a few times to some tens of times, and a file that is made to be large about a thousand times.
const (
	freeSize = 8 << 20
	maxRatio = 200
)

// counted counts the bytes that are read.
type counted struct {
	io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// inflater decompresses a gzip file, within the limits.
type inflater struct {
	z    *gzip.Reader
	from *counted // compressed
	n    int64
	free int64
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
