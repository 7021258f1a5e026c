package xdp

// receive describes the treatment of an interface's packets before XDP sees them. The zero value
// means that none is known.
type receive struct {
	// TakesTags: VLAN tags are beside the frame (rx-vlan-offload), where XDP does not see them.
	TakesTags bool
	// Fixed: that cannot be turned off.
	Fixed bool
	// Veth: whether tags are in the frame is decided by the other end (tx-vlan-offload).
	Veth bool
	// Merges: a tap or tun device whose user may write buffers of several segments (IFF_VNET_HDR).
	Merges bool
}
