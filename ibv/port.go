package ibv

import "net/netip"

// PortAttr is struct ibv_port_attr; see ibv_query_port(3). Only InfiniBand has LIDs, a subnet manager and
// service levels.
type PortAttr struct {
	State         PortState
	MaxMTU        MTU
	ActiveMTU     MTU
	GIDTblLen     int    // entries of the GID table, see QueryGID
	PortCapFlags  uint32 // enum ibv_port_cap_flags
	MaxMsgSz      uint32 // bytes
	BadPKeyCntr   uint32 // packets with a wrong P_Key
	QKeyViolCntr  uint32 // packets with a wrong Q_Key
	PKeyTblLen    uint16
	LID           uint16
	SMLID         uint16
	LMC           uint8 // the port has 2^LMC LIDs
	MaxVLNum      uint8 // a code, see ibv_query_port(3)
	SMSL          uint8
	SubnetTimeout uint8
	InitTypeReply uint8
	ActiveWidth   uint8 // a code: 1, 2, 4, 8, 16 are lanes of 1, 4, 8, 12, 2
	ActiveSpeed   uint8 // a code, see ibv_query_port(3)
	PhysState     uint8
	LinkLayer     LinkLayer
	Flags         uint8
	PortCapFlags2 uint16 // enum ibv_port_cap_flags2
}

// PortState is enum ibv_port_state.
type PortState uint32

// The states of a port. Packets pass only in PortActive.
const (
	PortNop PortState = iota
	PortDown
	PortInit
	PortArmed
	PortActive
	PortActiveDefer
)

func (s PortState) String() string {
	return name("port state", s, "nop", "down", "init", "armed", "active", "active defer")
}

// LinkLayer is the link layer of a port: IBV_LINK_LAYER_*.
type LinkLayer uint8

// The link layers.
const (
	LinkLayerUnspecified LinkLayer = iota
	LinkLayerInfiniBand
	LinkLayerEthernet
)

func (l LinkLayer) String() string {
	return name("link layer", l, "unspecified", "InfiniBand", "Ethernet")
}

// MTU is enum ibv_mtu: 1 means 256 bytes, and each step doubles the size.
type MTU uint32

// The MTUs.
const (
	MTU256 MTU = iota + 1
	MTU512
	MTU1024
	MTU2048
	MTU4096
)

// Bytes returns the MTU in bytes, or 0 for an unknown value.
func (m MTU) Bytes() int {
	if m < MTU256 || m > MTU4096 {
		return 0
	}
	return 128 << m
}

// QueryPort reads the attributes of a port. The first port is 1. An unknown port is EINVAL.
func (c *Context) QueryPort(port uint8) (PortAttr, error) {
	var a PortAttr
	if err := c.use(); err != nil {
		return a, err
	}
	defer c.done()

	return a, c.err("ibv_query_port", c.v.queryPort(c.h, port, &a))
}

// GID is union ibv_gid: the address of a port, in network order. On Ethernet it is an IPv6 address, or an
// IPv4 address written as ::ffff:a.b.c.d.
type GID [16]byte

// String formats the GID as an IPv6 address.
func (g GID) String() string { return netip.AddrFrom16(g).String() }

// QueryGID reads an entry of a port's GID table. The index goes from 0 to PortAttr.GIDTblLen-1. An unused
// entry is zero.
func (c *Context) QueryGID(port uint8, index int) (GID, error) {
	var g GID
	if err := c.use(); err != nil {
		return g, err
	}
	defer c.done()

	return g, c.err("ibv_query_gid", c.v.queryGID(c.h, port, index, &g))
}
