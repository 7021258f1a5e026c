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

// IsCapture reports whether an argument names a capture, rather than describing a packet in words or in hex. A missing
// file with the extension of a capture counts as one: the user mistyped a path.
func IsCapture(arg string) bool {
	ext := filepath.Ext(arg)
	if arg == "-" || ext == ".pcap" || ext == ".pcapng" {
		return true
	}
	_, err := os.Stat(arg)
	return err == nil
}

// ErrNumber: the capture ends before the packet with this number.
var ErrNumber = errors.New("no such packet")

// Captured fills p with the frame of one packet of a capture. The first packet is number 1, and 0 means the first, too.
// If p names no interface, it gets the one of a pcapng file. cut is how many bytes of the frame the capture left out.
func Captured(r io.Reader, number uint64, p *replay.Packet) (cut int, err error) {
	number = max(1, number)
	in, err := capture.Open(r)
	if err != nil {
		return 0, err
	}
	for n := uint64(1); ; n++ {
		rec, err := in.Next()
		if errors.Is(err, io.EOF) {
			return 0, fmt.Errorf("taking packet %d: %w: the capture has %s", number, ErrNumber, format.Plural(n-1, "packet", "packets"))
		}
		if err != nil {
			return 0, err
		}
		if n < number {
			continue
		}

		p.Frame = rec.Data
		p.Layer3 = rec.Layer3
		if p.Interface == "" {
			p.Interface = rec.Interface
		}
		return rec.Length - len(rec.Data), nil
	}
}
