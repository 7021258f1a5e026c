package capture

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// Record is one packet of a capture.
type Record struct {
	// Data is the captured part of the frame. The next call of Next overwrites it.
	Data []byte
	// Length is the original length of the frame. It exceeds len(Data) if the capture has cut the frame.
	Length int
	// Layer3 says that the frame begins with IP rather than Ethernet.
	Layer3 bool
	// Interface is the name of the interface. Only pcapng has it.
	Interface string
}

// Reader reads the records of one capture.
type Reader struct {
	next   func() (packet, error)
	n      uint64
	frame  []byte // memory for a converted frame
	failed error  // returned again by each later Next
}

// packet is a record in the form of the file, before it is converted.
type packet struct {
	data   []byte
	length int // the original one
	link   layers.LinkType
	name   string // of the interface
}

// snapLength is the longest accepted record, whatever snap length the file declares. libpcap has the same limit.
const snapLength = 256 << 10

// Open reads the head of a capture.
func Open(r io.Reader) (*Reader, error) {
	b := bufio.NewReaderSize(r, 1<<16)
	head, err := b.Peek(4)
	switch {
	case isGzip(head): // even if Peek failed, because the rest of the file is missing
		z, err := newInflater(b, freeSize)
		if err != nil {
			return nil, fmt.Errorf("reading the head of a gzip file: %w", err)
		}
		b = bufio.NewReaderSize(z, 1<<16)
		if head, err = b.Peek(4); err != nil {
			return nil, headError(head, err)
		}
	case err != nil:
		return nil, headError(head, err)
	}

	if isGzip(head) { // pcapgo would decompress it without our limits
		return nil, fmt.Errorf("%w: it is compressed twice", ErrNoCapture)
	}
	if binary.BigEndian.Uint32(head) == ngSection {
		return openNG(b)
	}
	return openPcap(b)
}

// isGzip reports whether a file begins like one of gzip.
func isGzip(head []byte) bool { return len(head) >= 2 && head[0] == 0x1f && head[1] == 0x8b }

// ErrNoCapture: the file does not begin like a capture.
var ErrNoCapture = errors.New("no capture in the format of pcap or pcapng")

// headError returns the error for a file with unreadable or missing first bytes.
func headError(head []byte, err error) error {
	switch {
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("reading the head of the capture: %w", err)
	case len(head) == 0:
		return fmt.Errorf("%w: it is empty", ErrNoCapture)
	}
	return fmt.Errorf("%w: it ends after %d bytes", ErrNoCapture, len(head))
}

func openPcap(b *bufio.Reader) (*Reader, error) {
	p, err := pcapgo.NewReader(b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("%w: it ends in the file's head", ErrNoCapture)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoCapture, err)
	}
	p.SetSnaplen(min(p.Snaplen(), snapLength))

	link := p.LinkType()
	if _, ok := links[link]; !ok {
		return nil, unsupported(link)
	}
	next := func() (packet, error) {
		data, ci, err := p.ZeroCopyReadPacketData()
		if errors.Is(err, io.EOF) && ci.CaptureLength != 0 { // it read a record's head, but no data
			err = io.ErrUnexpectedEOF
		}
		return packet{data: data, length: ci.Length, link: link}, err
	}
	return &Reader{next: next}, nil
}

func openNG(b *bufio.Reader) (*Reader, error) {
	p, err := newNGReader(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoCapture, unexpected(err))
	}
	return &Reader{next: p.next}, nil
}

// Next returns the next record, or io.EOF at the end of the capture. Any other error is final: Next returns it again,
// because nobody knows where the next record begins.
func (r *Reader) Next() (Record, error) {
	if r.failed != nil {
		return Record{}, r.failed
	}
	p, err := r.next()
	switch {
	case errors.Is(err, io.EOF): // between two records
		r.failed = io.EOF
		return Record{}, io.EOF
	case err != nil:
		r.failed = fmt.Errorf("record %d: %w", r.n+1, unexpected(err))
		return Record{}, r.failed
	}

	r.n++
	convert, ok := links[p.link]
	if !ok {
		r.failed = fmt.Errorf("record %d: %w", r.n, unsupported(p.link))
		return Record{}, r.failed
	}
	rec := Record{Data: p.data, Length: max(p.length, len(p.data)), Interface: p.name}
	r.frame = convert(&rec, r.frame)
	return rec, nil
}

// unexpected rewords the error of a file that ends inside a record.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the capture ends inside of it: %w", io.ErrUnexpectedEOF)
	}
	return err
}
