package ibv

import "fmt"

// Device is an entry of the device list.
type Device struct {
	Name      string // "mlx5_0"
	SysfsPath string // ibdev_path: the device's directory in class infiniband
	GUID      uint64 // node GUID, host order; 0 where unknown
	NodeType  NodeType
	Transport TransportType
}

// NodeType is enum ibv_node_type.
type NodeType int32

// TransportType is enum ibv_transport_type.
type TransportType int32

// The node types.
const (
	NodeUnknown NodeType = iota - 1
	_
	NodeCA
	NodeSwitch
	NodeRouter
	NodeRNIC
	NodeUSNIC
	NodeUSNICUDP
	NodeUnspecified
)

// The transports.
const (
	TransportUnknown TransportType = iota - 1
	TransportIB
	TransportIWARP
	TransportUSNIC
	TransportUSNICUDP
	TransportUnspecified
)

// DeviceAttr is struct ibv_device_attr.
type DeviceAttr struct {
	FWVer                             string
	NodeGUID, SysImageGUID            uint64 // host order
	MaxMRSize, PageSizeCap            uint64
	VendorID, VendorPartID, HWVer     uint32
	DeviceCapFlags                    DeviceCapFlags
	MaxQP, MaxQPWR, MaxSGE, MaxCQ     int
	MaxCQE, MaxMR, MaxPD, MaxQPRdAtom int
	MaxRawEthyQP                      int
	PhysPortCnt                       uint8
}

// DeviceCapFlags is enum ibv_device_cap_flags.
type DeviceCapFlags uint32

// The capability flags that matter here.
const (
	DeviceRawIPCsum           DeviceCapFlags = 1 << 26
	DeviceManagedFlowSteering DeviceCapFlags = 1 << 29
)

// PortAttr is struct ibv_port_attr.
type PortAttr struct {
	State                        PortState
	MaxMTU, ActiveMTU            MTU
	GIDTblLen                    int
	PortCapFlags, MaxMsgSz       uint32
	BadPKeyCntr, QKeyViolCntr    uint32
	PKeyTblLen, LID, SMLID       uint16
	LMC, MaxVLNum, SMSL          uint8
	SubnetTimeout, InitTypeReply uint8
	ActiveWidth, ActiveSpeed     uint8
	PhysState                    uint8
	LinkLayer                    LinkLayer
	Flags                        uint8
	PortCapFlags2                uint16
}

// PortState is enum ibv_port_state.
type PortState uint32

// The states of a port.
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

// MTU is enum ibv_mtu: 1 is 256 bytes, each step doubles.
type MTU uint32

// The MTUs.
const (
	MTU256 MTU = iota + 1
	MTU512
	MTU1024
	MTU2048
	MTU4096
)

// Bytes returns the MTU in bytes; 0 for a value that is not one of the five.
func (m MTU) Bytes() int {
	if m < MTU256 || m > MTU4096 {
		return 0
	}
	return 128 << m
}

// name is the word for v, or the number of a value from a newer library.
func name[T ~uint8 | ~uint32](kind string, v T, words ...string) string {
	if uint64(v) < uint64(len(words)) {
		return words[v]
	}
	return fmt.Sprintf("%s %d", kind, uint32(v))
}
