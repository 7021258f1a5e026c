package ibv

// Device is an entry of the device list.
type Device struct {
	Name      string // "mlx5_0"
	SysfsPath string // ibdev_path: the device's directory in class infiniband
	GUID      uint64 // node GUID; 0 where unknown
	NodeType  NodeType
	Transport TransportType
}

// NodeType is enum ibv_node_type.
type NodeType int32

// The node types. The header skips 0.
const (
	NodeUnknown NodeType = iota - 1
	_
	NodeCA
	NodeSwitch
	NodeRouter
	NodeRNIC
	NodeUSNIC
	NodeUSNICUDP
	NodeUnspecified // EFA's
)

// TransportType is enum ibv_transport_type.
type TransportType int32

// The transports.
const (
	TransportUnknown TransportType = iota - 1
	TransportIB
	TransportIWARP
	TransportUSNIC
	TransportUSNICUDP
	TransportUnspecified
)

// DeviceAttr is struct ibv_device_attr; see ibv_query_device(3). The maxima are the device's own. The
// host's memory may allow less.
type DeviceAttr struct {
	FWVer          string
	NodeGUID       uint64
	SysImageGUID   uint64
	MaxMRSize      uint64 // bytes
	PageSizeCap    uint64 // bit n: pages of 2^n bytes
	VendorID       uint32
	VendorPartID   uint32
	HWVer          uint32
	DeviceCapFlags DeviceCapFlags
	MaxQP          int
	MaxQPWR        int // outstanding work requests of one queue
	MaxSGE         int // of one work request
	MaxCQ          int
	MaxCQE         int // entries of one completion queue
	MaxMR          int
	MaxPD          int
	MaxQPRdAtom    int // concurrent RDMA reads and atomics answered by a queue pair
	MaxRawEthyQP   int
	PhysPortCnt    uint8 // ports are numbered from 1
}

// DeviceCapFlags is enum ibv_device_cap_flags.
type DeviceCapFlags uint32

// The capability flags of flow steering and of raw packets.
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
