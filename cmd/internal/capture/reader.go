package capture

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// Record is one packet of a capture.
type Record struct {
	// Data is the frame as far as it was captured. It is valid until the next record is read.
	Data []byte
	// Length is the length of the frame when it was captured, at least len(Data). If it is more, the capture has
	// cut the frame.
	Length int
	// Layer3 reports that the frame begins with IP.
	Layer3 bool
	// Interface is the name of the interface, if the capture (pcapng) has it.
	Interface string
}

// Reader reads the records of one capture.
type Reader struct {
	next   func() ([]byte, gopacket.CaptureInfo, error) // the link type is in AncillaryData, if several are possible
	link   func(gopacket.CaptureInfo) layers.LinkType
	name   func(gopacket.CaptureInfo) string
	n      uint64
	frame  []byte // of a link type that is converted
	failed error
}

// snapLength is the longest record of a pcap file that is read, whatever length the file declares. libpcap has this limit.
const snapLength = 256 << 10

// Open reads the head of a capture.
func Open(r io.Reader) (*Reader, error) {
	b := bufio.NewReaderSize(r, 1<<16)
	head, err := b.Peek(4)
	if len(head) >= 2 && head[0] == 0x1f && head[1] == 0x8b {
		z, err := newInflater(b, freeSize)
		if err != nil {
			return nil, fmt.Errorf("reading the head of a gzip file: %w", err)
		}
		b = bufio.NewReaderSize(z, 1<<16)
		head, err = b.Peek(4)
		if err != nil {
			return nil, headError(head, err)
		}
	} else if err != nil {
		return nil, headError(head, err)
	}
	if [4]byte(head) == [4]byte{0x0a, 0x0d, 0x0d, 0x0a} {
		return openNG(b)
	}
	return openPcap(b)
}

// ErrNoCapture: the file does not begin as a capture.
var ErrNoCapture = errors.New("no capture in the format of pcap or pcapng")

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
	return &Reader{
		next: p.ZeroCopyReadPacketData,
		link: func(gopacket.CaptureInfo) layers.LinkType { return link },
		name: func(gopacket.CaptureInfo) string { return "" },
	}, nil
}

func openNG(b *bufio.Reader) (*Reader, error) {
	p, err := pcapgo.NewNgReader(b, pcapgo.NgReaderOptions{WantMixedLinkType: true})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoCapture, unexpected(err))
	}
	of := func(ci gopacket.CaptureInfo) pcapgo.NgInterface {
		i, _ := p.Interface(ci.InterfaceIndex) // the reader has checked the index
		return i
	}
	return &Reader{
		next: p.ZeroCopyReadPacketData,
		link: func(ci gopacket.CaptureInfo) layers.LinkType { return of(ci).LinkType },
		name: func(ci gopacket.CaptureInfo) string { return of(ci).Name },
	}, nil
}

// Next returns the next record, and io.EOF at the end of the capture. After another error it returns that error again:
// the place of the next record is not known.
func (r *Reader) Next() (Record, error) {
	if r.failed != nil {
		return Record{}, r.failed
	}
	data, ci, err := r.next()
	switch {
	case errors.Is(err, io.EOF) && ci.CaptureLength == 0: // between two records
		r.failed = io.EOF
		return Record{}, io.EOF
	case err != nil:
		r.failed = fmt.Errorf("record %d: %w", r.n+1, unexpected(err))
		return Record{}, r.failed
	}
	r.n++
	rec := Record{Data: data, Length: max(ci.Length, len(data)), Interface: r.name(ci)}
	link := r.link(ci)
	convert, ok := links[link]
	if !ok {
		r.failed = fmt.Errorf("record %d: %w", r.n, unsupported(link))
		return Record{}, r.failed
	}
	r.frame = convert(&rec, r.frame)
	return rec, nil
}

// unexpected names an end of the file inside of a record.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the capture ends inside of it: %w", io.ErrUnexpectedEOF)
	}
	return err
}
