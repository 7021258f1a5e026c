package explain

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/flowtally/flowtally/cmd/internal/capture"
	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/cmd/internal/replay"
)

// IsCapture reports whether an argument is the path of a capture, in place of a packet in words or in hex: a file that
// exists, a name that ends like one, or "-".
func IsCapture(arg string) bool {
	if ext := filepath.Ext(arg); arg == "-" || ext == ".pcap" || ext == ".pcapng" {
		return true
	}
	_, err := os.Stat(arg)
	return err == nil
}

// ErrNumber: the capture has no packet of this number.
var ErrNumber = errors.New("no such packet")

// Captured fills p with the frame of the packet with this number in a capture; the first is 1. It keeps the
// interface of p if that has one. cut is the number of bytes that the capture has cut off the frame.
func Captured(r io.Reader, number uint64, p *replay.Packet) (cut int, err error) {
	in, err := capture.Open(r)
	if err != nil {
		return 0, err
	}
	for n := uint64(1); ; n++ {
		rec, err := in.Next()
		if errors.Is(err, io.EOF) {
			return 0, fmt.Errorf("%w: it holds %s", ErrNumber, format.Plural(n-1, "packet", "packets"))
		}
		if err != nil {
			return 0, err
		}
		if n == max(1, number) {
			p.Frame, p.Layer3 = rec.Data, rec.Layer3
			if p.Interface == "" {
				p.Interface = rec.Interface
			}
			return rec.Length - len(rec.Data), nil
		}
	}
}
