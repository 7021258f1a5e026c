package dataplane

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// The largest numbers in an InfiniBand address.
const (
	mostQPN = 1<<24 - 2 // 1<<24 - 1 is the multicast QP number
	mostPSN = 1<<24 - 1
	mostLID = 0xbfff // above are multicast LIDs
)

// QueuePairAddress is everything a queue pair must know of its peer.
type QueuePairAddress struct {
	// GID of the port, as an IPv6 address. On RoCE it is the IP address of the interface; IPv4 is written as
	// ::ffff:192.0.2.1. The zero Addr means a port without a GID. Multicast GIDs are invalid.
	GID netip.Addr

	// LID of the port; 0 on Ethernet.
	LID uint16

	// QPN is the number of the queue pair, and PSN the sequence number of its first packet.
	QPN, PSN uint32

	// QKey must be in every datagram sent to the queue pair; [UD] and [SRD] only.
	QKey uint32

	// Addr and RKey give access to the buffer for rdma_write and rdma_read; [RC] and [SRD] only.
	Addr uint64
	RKey uint32
}

// Validate reports every invalid field, in an error that satisfies errors.Is(err, ErrInvalid).
func (a QueuePairAddress) Validate() error {
	var errs problems
	a.check(func(field, cause, fix string) { errs.add("%s: %s; %s", field, cause, fix) })
	return errs.err()
}

// check calls bad with each invalid field.
func (a QueuePairAddress) check(bad func(field, cause, fix string)) {
	const fix = "copy the address that `flowtally queue-pairs list` shows of the peer"
	if a.QPN < 2 || a.QPN > mostQPN {
		bad("qpn", fmt.Sprintf("%d is the number of no queue pair: they go from 2 to %d", a.QPN, mostQPN), fix)
	}
	if a.PSN > mostPSN {
		bad("psn", fmt.Sprintf("%d is above %d", a.PSN, mostPSN), fix)
	}
	if a.LID > mostLID {
		bad("lid", fmt.Sprintf("%d is above %d", a.LID, mostLID), fix)
	}
	switch {
	case !a.GID.IsValid() && a.LID == 0:
		bad("gid", "there is neither a GID nor a LID to reach it by", fix)
	case a.GID.IsValid() && !isGID(a.GID):
		bad("gid", fmt.Sprintf("%s is no GID", a.GID), "write it as an IPv6 address without a zone, an IPv4 one as ::ffff:192.0.2.1")
	case a.GID.IsMulticast(): // also IPv4-mapped addresses, like the kernel's rdma_is_multicast_addr
		bad("gid", fmt.Sprintf("%s is a multicast GID: a reliable connection has one other end, and datagrams to a group (ibv_attach_mcast) are not offered", a.GID), fix)
	}
}

func isGID(gid netip.Addr) bool { return gid.Is6() && gid.Zone() == "" && !gid.IsUnspecified() }

// String returns the address in the form of [ParseQueuePairAddress], such as
// "gid=fe80::1,qpn=17,psn=4660,addr=0x7f0000001000,rkey=0x1f2". It leaves out zero fields.
func (a QueuePairAddress) String() string {
	var parts []string
	if a.GID.IsValid() {
		parts = append(parts, "gid="+a.GID.String())
	}
	for _, f := range addressFields {
		if v := f.get(&a); v != 0 {
			parts = append(parts, f.name+"="+f.format(v))
		}
	}
	return strings.Join(parts, ",")
}

// ParseQueuePairAddress parses the output of [QueuePairAddress.String]. Numbers are decimal, or hexadecimal with 0x. The
// returned address is valid.
func ParseQueuePairAddress(s string) (QueuePairAddress, error) {
	var a QueuePairAddress
	bad := func(cause, fix string) (QueuePairAddress, error) {
		return QueuePairAddress{}, fmt.Errorf("address %q: %w: %s; %s", s, ErrInvalid, cause, fix)
	}

	seen := make(map[string]bool)
	for part := range strings.SplitSeq(s, ",") {
		name, value, found := strings.Cut(part, "=")
		switch {
		case !found:
			return bad(fmt.Sprintf("%q has no =", part), "write it as gid=fe80::1,qpn=17,psn=4660")
		case seen[name]:
			return bad(name+" is given twice", "leave one out")
		}
		seen[name] = true

		if name == "gid" {
			gid, err := netip.ParseAddr(value)
			if err != nil {
				return bad(fmt.Sprintf("%q is no GID", value), "write it as an IPv6 address")
			}
			a.GID = gid
			continue
		}
		if err := a.set(name, value); err != nil {
			return bad(err.Error(), "its fields are gid, lid, qpn, psn, qkey, addr and rkey")
		}
	}

	if err := a.Validate(); err != nil {
		return QueuePairAddress{}, fmt.Errorf("address %q: %w", s, err)
	}
	return a, nil
}

// set parses one numeric field.
func (a *QueuePairAddress) set(name, value string) error {
	for _, f := range addressFields {
		if f.name != name {
			continue
		}
		v, err := strconv.ParseUint(value, 0, f.bits)
		if err != nil || strings.Contains(value, "_") {
			return fmt.Errorf("%s: %q is no number of %d bits", name, value, f.bits)
		}
		f.put(a, v)
		return nil
	}
	return fmt.Errorf("there is no field %q", name)
}

// addressField is one numeric field of an address.
type addressField struct {
	name string
	bits int
	hex  bool // for String; both forms are parsed
	get  func(*QueuePairAddress) uint64
	put  func(*QueuePairAddress, uint64)
}

func (f addressField) format(v uint64) string {
	if f.hex {
		return "0x" + strconv.FormatUint(v, 16)
	}
	return strconv.FormatUint(v, 10)
}

var addressFields = [...]addressField{
	{"lid", 16, false, func(a *QueuePairAddress) uint64 { return uint64(a.LID) }, func(a *QueuePairAddress, v uint64) { a.LID = uint16(v) }},
	{"qpn", 32, false, func(a *QueuePairAddress) uint64 { return uint64(a.QPN) }, func(a *QueuePairAddress, v uint64) { a.QPN = uint32(v) }},
	{"psn", 32, false, func(a *QueuePairAddress) uint64 { return uint64(a.PSN) }, func(a *QueuePairAddress, v uint64) { a.PSN = uint32(v) }},
	{"qkey", 32, true, func(a *QueuePairAddress) uint64 { return uint64(a.QKey) }, func(a *QueuePairAddress, v uint64) { a.QKey = uint32(v) }},
	{"addr", 64, true, func(a *QueuePairAddress) uint64 { return a.Addr }, func(a *QueuePairAddress, v uint64) { a.Addr = v }},
	{"rkey", 32, true, func(a *QueuePairAddress) uint64 { return uint64(a.RKey) }, func(a *QueuePairAddress, v uint64) { a.RKey = uint32(v) }},
}
