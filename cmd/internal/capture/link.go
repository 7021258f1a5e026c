package capture

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gopacket/gopacket/layers"
)

// ErrLink: the classifier cannot read frames of this link type, for example Wi-Fi.
var ErrLink = errors.New("link type is not supported")

func unsupported(link layers.LinkType) error {
	name := link.String()
	if name == "" || name == "UnknownLinkType" {
		name = "unknown"
	}
	return fmt.Errorf("link type %d (%s): %w; supported are Ethernet (1), raw IP (12, 101, 228, 229), the BSD loopback (0, 108) and Linux cooked captures (113, 276)",
		link, name, ErrLink)
}

// links has, for each supported link type, a function that makes a record's frame begin with Ethernet or IP. The function
// may build the new frame in buf, and returns buf for the next record.
var links = map[layers.LinkType]func(r *Record, buf []byte) []byte{
	layers.LinkTypeEthernet:  func(_ *Record, buf []byte) []byte { return buf },
	12:                       layer3, // DLT_RAW, which layers lacks
	layers.LinkTypeRaw:       layer3,
	layers.LinkTypeIPv4:      layer3,
	layers.LinkTypeIPv6:      layer3,
	layers.LinkTypeNull:      loopback,
	layers.LinkTypeLoop:      loopback,
	layers.LinkTypeLinuxSLL:  cooked,
	layers.LinkTypeLinuxSLL2: cooked2,
}

func layer3(r *Record, buf []byte) []byte {
	r.Layer3 = true
	return buf
}

// loopback removes the address family, in 4 bytes before the IP header.
func loopback(r *Record, buf []byte) []byte {
	r.trimFront(4)
	return layer3(r, buf)
}

// Types of devices with Ethernet headers (linux/if_arp.h).
const (
	arphrdEther    = 1
	arphrdLoopback = 772
)

// cooked rebuilds an Ethernet frame from a Linux cooked capture (SLL). The SLL header has the sender's address and the
// EtherType, but not the receiver's address, which becomes zero. Without an Ethernet device, the frame begins with IP.
func cooked(r *Record, buf []byte) []byte {
	const head = 16
	if len(r.Data) < head {
		return cutCooked(r, buf)
	}
	d := r.Data
	return ethernet(r, buf, head, binary.BigEndian.Uint16(d[2:]), d[6:12], d[14:16])
}

// cooked2 is cooked for the second version of the header (SLL2).
func cooked2(r *Record, buf []byte) []byte {
	const head = 20
	if len(r.Data) < head {
		return cutCooked(r, buf)
	}
	d := r.Data
	return ethernet(r, buf, head, binary.BigEndian.Uint16(d[8:]), d[12:18], d[0:2])
}

// cutCooked returns a record without data, because the capture has cut even the SLL header.
func cutCooked(r *Record, buf []byte) []byte {
	r.Data = r.Data[:0]
	return buf
}

// ethernet builds an Ethernet frame in buf, from the packet after the first head bytes. For a device without Ethernet it
// only removes these bytes.
func ethernet(r *Record, buf []byte, head int, device uint16, src, etherType []byte) []byte {
	if device != arphrdEther && device != arphrdLoopback {
		r.trimFront(head)
		return layer3(r, buf)
	}

	buf = append(buf[:0], make([]byte, 6)...) // the receiver's address
	buf = append(buf, src...)
	buf = append(buf, etherType...)
	payload := r.Length - head
	buf = append(buf, r.Data[head:]...)
	r.Length = 14 + payload
	r.Data = buf
	return buf
}

// trimFront removes n bytes from the start of the frame.
func (r *Record) trimFront(n int) {
	n = min(n, r.Length)
	r.Length -= n
	r.Data = r.Data[min(n, len(r.Data)):]
}
