package ibv

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

// QueryDevice reads the device's attributes.
func (c *Context) QueryDevice() (DeviceAttr, error) {
	var a DeviceAttr
	if err := c.use(); err != nil {
		return a, err
	}
	defer c.done()
	return a, c.err("ibv_query_device", c.v.queryDevice(c.h, &a))
}
