package capture

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gopacket/gopacket/layers"
)

// ErrLink: frames of this link type have no headers that the classifier reads.
var ErrLink = errors.New("link type is not supported")

func unsupported(link layers.LinkType) error {
	name := link.String()
	if name == "" || name == "UnknownLinkType" {
		name = "unknown"
	}
	return fmt.Errorf("link type %d (%s): %w; supported are Ethernet (1), raw IP (12, 101, 228, 229), the BSD loopback (0, 108) and Linux cooked captures (113, 276)",
		link, name, ErrLink)
}

// links turns the frame of a record, by its link type, into one that begins with Ethernet or with IP. buf is memory
// that the function may use for the frame; it returns the memory for the next call.
var links = map[layers.LinkType]func(r *Record, buf []byte) []byte{
	layers.LinkTypeEthernet:  func(_ *Record, buf []byte) []byte { return buf },
	12:                       layer3, // DLT_RAW
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

// loopback takes off the 4 bytes of the address family.
func loopback(r *Record, buf []byte) []byte {
	r.behind(4)
	return layer3(r, buf)
}

// Types of devices whose frames have an Ethernet header (linux/if_arp.h).
const (
	arphrdEther    = 1
	arphrdLoopback = 772
)

// cooked makes an Ethernet frame of a Linux cooked capture (SLL): the address of the sender and the EtherType are in
// its header, the address of the receiver is not and becomes zero. Frames of devices without Ethernet begin with IP.
func cooked(r *Record, buf []byte) []byte {
	const head = 16
	if len(r.Data) < head {
		return cutCooked(r, buf)
	}
	d := r.Data
	return ethernet(r, buf, head, binary.BigEndian.Uint16(d[2:]), d[6:12], d[14:16])
}

// cooked2 does the same for the second version (SLL2).
func cooked2(r *Record, buf []byte) []byte {
	const head = 20
	if len(r.Data) < head {
		return cutCooked(r, buf)
	}
	d := r.Data
	return ethernet(r, buf, head, binary.BigEndian.Uint16(d[8:]), d[12:18], d[0:2])
}

// cutCooked makes a record of a packet of which no header is known: the capture has cut it inside of its own header.
func cutCooked(r *Record, buf []byte) []byte {
	r.Data = r.Data[:0]
	return buf
}

// ethernet makes an Ethernet frame of the packet behind head, in buf; or leaves the packet, if the device has no
// Ethernet.
func ethernet(r *Record, buf []byte, head int, device uint16, src, etherType []byte) []byte {
	if device != arphrdEther && device != arphrdLoopback {
		r.behind(head)
		return layer3(r, buf)
	}

	buf = append(buf[:0], make([]byte, 6)...) // the receiver
	buf = append(buf, src...)
	buf = append(buf, etherType...)
	payload := r.Length - head
	buf = append(buf, r.Data[head:]...)
	r.Length = 14 + payload
	r.Data = buf
	return buf
}

// behind takes n bytes off the start of the frame.
func (r *Record) behind(n int) {
	n = min(n, r.Length)
	r.Length -= n
	r.Data = r.Data[min(n, len(r.Data)):]
}
