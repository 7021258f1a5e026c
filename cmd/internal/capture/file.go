package capture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

// File is a file that counts the bytes read from it, to show progress.
type File struct {
	io.ReadCloser
	Size int64 // 0: unknown, as for a pipe
	read atomic.Int64
}

// Read implements io.Reader.
func (f *File) Read(p []byte) (int, error) {
	n, err := f.ReadCloser.Read(p)
	f.read.Add(int64(n))
	return n, err
}

// Offset returns the number of bytes read so far. It may be called from any goroutine.
func (f *File) Offset() int64 { return f.read.Load() }

// ErrDirectory: the path is a directory.
var ErrDirectory = errors.New("a directory is no capture")

// OpenFile opens the file at path, or stdin for "-". Opening a FIFO blocks until a writer opens it. If ctx ends first,
// OpenFile returns, and leaves behind a goroutine that is still waiting.
func OpenFile(ctx context.Context, path string, stdin io.Reader) (*File, error) {
	if path == "-" {
		return &File{ReadCloser: io.NopCloser(stdin)}, nil
	}

	type opened struct {
		f   *os.File
		err error
	}
	done := make(chan opened, 1)
	go func() {
		f, err := os.Open(path)
		done <- opened{f, err}
	}()

	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: opening the capture: %w", path, ctx.Err())
	case o := <-done:
		if o.err != nil {
			return nil, fmt.Errorf("opening the capture: %w", o.err)
		}
		return newFile(path, o.f)
	}
}

// newFile wraps f, and closes it if it is a directory.
func newFile(path string, f *os.File) (*File, error) {
	st, err := f.Stat()
	if err == nil && st.IsDir() {
		err = fmt.Errorf("%s: %w", path, ErrDirectory)
	}
	if err != nil {
		f.Close()
		return nil, err
	}

	out := &File{ReadCloser: f}
	if st.Mode().IsRegular() {
		out.Size = st.Size()
	}
	return out, nil
}
