package lab

import "golang.org/x/sys/unix"

// Classic BPF, as a socket filter has it (net/core/filter.c).
const (
	ldHalf = unix.BPF_LD | unix.BPF_H | unix.BPF_ABS
	ldByte = unix.BPF_LD | unix.BPF_B | unix.BPF_ABS
	jeq    = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	ret    = unix.BPF_RET | unix.BPF_K

	// Ancillary data: the packet's direction (SKF_AD_OFF + SKF_AD_PKTTYPE).
	pktType  = 0xfffff000 + 4
	outgoing = 4 // PACKET_OUTGOING
)

// tcpTo lets TCP to port through, over IPv4 without options or IPv6 without
// extension headers, in one direction.
func tcpTo(port uint16, leaving bool) []unix.SockFilter {
	const next, refuse, ipv6 = 0, 1, 10
	onLeaving, onArriving := next, refuse
	if !leaving {
		onLeaving, onArriving = refuse, next
	}
	program := []struct {
		code uint16
		k    uint32
		// Where a comparison goes: next, or the place of an instruction.
		yes, no int
	}{
		0:  {ldByte, pktType, next, next},
		1:  {jeq, outgoing, onLeaving, onArriving},
		2:  {ldHalf, 12, next, next},
		3:  {jeq, unix.ETH_P_IP, next, ipv6},
		4:  {ldByte, 14, next, next},
		5:  {jeq, 0x45, next, refuse}, // no options
		6:  {ldByte, 14 + 9, next, next},
		7:  {jeq, unix.IPPROTO_TCP, next, refuse},
		8:  {ldHalf, 14 + 20 + 2, next, next},
		9:  {jeq, uint32(port), 15, refuse},
		10: {jeq, unix.ETH_P_IPV6, next, refuse},
		11: {ldByte, 14 + 6, next, next},
		12: {jeq, unix.IPPROTO_TCP, next, refuse},
		13: {ldHalf, 14 + 40 + 2, next, next},
		14: {jeq, uint32(port), next, refuse},
		15: {ret, 0xffffffff, next, next},
		16: {ret, 0, next, next},
	}
	filter := make([]unix.SockFilter, len(program))
	for i, p := range program {
		jump := func(to int) uint8 {
			switch to {
			case next:
				return 0
			case refuse:
				to = len(program) - 1
			}
			return uint8(to - i - 1)
		}
		filter[i] = unix.SockFilter{Code: p.code, K: p.k, Jt: jump(p.yes), Jf: jump(p.no)}
	}
	return filter
}

// attachFilter puts the filter on a socket.
func attachFilter(fd int, filter []unix.SockFilter) error {
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &prog)
}
