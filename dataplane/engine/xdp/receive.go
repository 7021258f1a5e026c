package xdp

// receive is what a device does to received packets before XDP sees them. The zero value stands for nothing, or nothing known.
type receive struct {
	// TakesTags: the device takes VLAN tags out of the frame (rx-vlan-offload), so XDP does not see them.
	TakesTags bool
	// Fixed: the offload cannot be turned off.
	Fixed bool
	// Veth: the other end of the pair decides where the tag is (its tx-vlan-offload).
	Veth bool
	// Merges: a tap or tun device whose user may write buffers of several segments (IFF_VNET_HDR).
	Merges bool
}
