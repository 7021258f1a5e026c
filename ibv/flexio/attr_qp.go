package flexio

import "net"

// QPTransport is enum flexio_qp_transport_type. The reference gives no values. These come from the SDK's public
// flexio.h, and equal the device's (qpc.st).
type QPTransport uint8

// The transports.
const (
	QPTransportRC          QPTransport = 0x0
	QPTransportUC          QPTransport = 0x1
	QPTransportUD          QPTransport = 0x2
	QPTransportXRC         QPTransport = 0x3
	QPTransportIBL2        QPTransport = 0x4
	QPTransportDCI         QPTransport = 0x5
	QPTransportQP0         QPTransport = 0x7
	QPTransportQP1         QPTransport = 0x8
	QPTransportRawDatagram QPTransport = 0x9
	QPTransportRegUMR      QPTransport = 0xc
	QPTransportDCCNAK      QPTransport = 0x10
)

var qpTransportNames = map[QPTransport]string{
	QPTransportRC: "RC", QPTransportUC: "UC", QPTransportUD: "UD", QPTransportXRC: "XRC", QPTransportIBL2: "IBL2", QPTransportDCI: "DCI",
	QPTransportQP0: "QP0", QPTransportQP1: "QP1", QPTransportRawDatagram: "RAW_DATAGRAM", QPTransportRegUMR: "REG_UMR", QPTransportDCCNAK: "DC_CNAK",
}

func (t QPTransport) String() string { return name(qpTransportNames, "transport", t) }

// QPState is enum flexio_qp_state. The reference names only the four states below.
type QPState uint8

// The states for QPAttr.NextState.
const (
	QPStateReset QPState = 0x0
	QPStateInit  QPState = 0x1
	QPStateRTR   QPState = 0x2
	QPStateRTS   QPState = 0x3
)

var qpStateNames = map[QPState]string{QPStateReset: "RST", QPStateInit: "INIT", QPStateRTR: "RTR", QPStateRTS: "RTS"}

func (s QPState) String() string { return name(qpStateNames, "state", s) }

// QPMTU is enum flexio_qp_qpc_mtu. 0 means not given.
type QPMTU uint8

// The path MTUs, in bytes.
const (
	QPMTU256 QPMTU = 1
	QPMTU512 QPMTU = 2
	QPMTU1K  QPMTU = 3
	QPMTU2K  QPMTU = 4
	QPMTU4K  QPMTU = 5
)

var qpMTUNames = map[QPMTU]string{QPMTU256: "256", QPMTU512: "512", QPMTU1K: "1024", QPMTU2K: "2048", QPMTU4K: "4096"}

func (m QPMTU) String() string { return name(qpMTUNames, "MTU", m) }

// RQType is the kind of a QP's receive queue.
type RQType uint8

// The kinds of receive queue.
const (
	RQRegular RQType = 0x0
	RQRMP     RQType = 0x1 // a receive memory pool, which several QPs may share
	RQZero    RQType = 0x3 // none
)

var rqTypeNames = map[RQType]string{RQRegular: "regular", RQRMP: "RMP", RQZero: "zero-RQ"}

func (t RQType) String() string { return name(rqTypeNames, "RQ type", t) }

// QPAttr is flexio_qp_attr. The SDK uses it both to create and to modify a QP. Numbers of queues, PSNs and the user
// index have 24 bits.
type QPAttr struct {
	// Attributes for creating a QP.
	TransportType QPTransport `ref:"transport_type"`
	PD            *Object     `ref:"pd"`
	UARID         uint32      `ref:"uar_id"`
	UserIndex     uint32      `ref:"user_index"`
	OpsFlag       int32       `ref:"ops_flag"` // deprecated and ignored
	NoSQ          bool        `ref:"no_sq"`
	LogSQDepth    uint8       `ref:"log_sq_depth"`
	SQCQN         uint32      `ref:"sq_cqn"`
	RQType        RQType      `ref:"rq_type"`
	LogRQDepth    uint8       `ref:"log_rq_depth"`
	RQCQN         uint32      `ref:"rq_cqn"` // not for an RMP
	RMPQN         uint32      `ref:"rmpqn"`  // only for an RMP
	QPWQBuffQMem  QMem        `ref:"qp_wq_buff_qmem"`
	QPWQDBRQMem   QMem        `ref:"qp_wq_dbr_qmem"`
	IsolateVLTC   bool        `ref:"isolate_vl_tc"`

	// Attributes for modifying a QP.
	NextState      QPState          `ref:"next_state"`
	QPAccessMask   Access           `ref:"qp_access_mask"`
	VHCAPortNum    uint8            `ref:"vhca_port_num"`
	RemoteQPNum    uint32           `ref:"remote_qp_num"`
	PathMTU        QPMTU            `ref:"path_mtu"`
	GIDTableIndex  uint8            `ref:"gid_table_index"`
	GRH            bool             `ref:"grh"`
	FL             bool             `ref:"fl"` // force loopback
	DestMAC        net.HardwareAddr `ref:"dest_mac"`
	RGIDOrRIP      [16]byte         `ref:"rgid_or_rip"`
	RLID           uint16           `ref:"rlid"`
	UDPSport       uint16           `ref:"udp_sport"`
	QKey           uint32           `ref:"q_key"`
	NextSendPSN    uint32           `ref:"next_send_psn"`
	NextRcvPSN     uint32           `ref:"next_rcv_psn"`
	MinRNRNAKTimer uint32           `ref:"min_rnr_nak_timer"` // a code of 5 bits, not a time
	RetryCount     uint8            `ref:"retry_count"`
	LogRRAMax      uint8            `ref:"log_rra_max"`
	LogSRAMax      uint8            `ref:"log_sra_max"`
}

const qpAccess = AccessLocalWrite | AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic

// Validate reports every attribute that is wrong for both creating and modifying a QP.
func (a *QPAttr) Validate() error {
	c := checks{of: "flexio_qp_attr"}
	a.checkCreate(&c)
	a.checkModify(&c)
	return c.err()
}

// ValidateCreate calls Validate, and also reports attributes missing for creating a QP.
func (a *QPAttr) ValidateCreate() error {
	if err := a.Validate(); err != nil {
		return err
	}
	c := checks{of: "flexio_qp_attr"}
	if a.PD == nil {
		c.refuse("pd", "a QP belongs to a protection domain")
	}
	if !a.NoSQ || a.RQType == RQRegular {
		c.within("qp_wq_buff_qmem", func(c *checks) { a.QPWQBuffQMem.check(c, ringAlign) })
		c.within("qp_wq_dbr_qmem", func(c *checks) { a.QPWQDBRQMem.check(c, dbrAlign) })
	}
	return c.err()
}

func (a *QPAttr) checkCreate(c *checks) {
	_, ok := qpTransportNames[a.TransportType]
	c.known("transport_type", a.TransportType, ok)
	c.fits("uar_id", uint64(a.UARID), 24)
	c.fits("user_index", uint64(a.UserIndex), 24)
	c.fits("log_sq_depth", uint64(a.LogSQDepth), 4)
	c.fits("sq_cqn", uint64(a.SQCQN), 24)
	if a.NoSQ && a.LogSQDepth != 0 {
		c.refuse("log_sq_depth", "there is no SQ: no_sq is set")
	}
	if a.NoSQ && a.SQCQN != 0 {
		c.refuse("sq_cqn", "there is no SQ: no_sq is set")
	}
	_, ok = rqTypeNames[a.RQType]
	c.known("rq_type", a.RQType, ok)
	c.fits("log_rq_depth", uint64(a.LogRQDepth), 4)
	c.fits("rq_cqn", uint64(a.RQCQN), 24)
	c.fits("rmpqn", uint64(a.RMPQN), 24)
	if a.RQType != RQRegular && a.LogRQDepth != 0 {
		c.refuse("log_rq_depth", "is of a regular RQ, and rq_type is %s", a.RQType)
	}
	if a.RQType == RQRMP && a.RQCQN != 0 {
		c.refuse("rq_cqn", "is not of an RMP, which has its own")
	}
	if a.RQType != RQRMP && a.RMPQN != 0 {
		c.refuse("rmpqn", "is of an RMP only, and rq_type is %s", a.RQType)
	}
	if !a.QPWQBuffQMem.unset() {
		c.within("qp_wq_buff_qmem", func(c *checks) { a.QPWQBuffQMem.check(c, ringAlign) })
	}
	if !a.QPWQDBRQMem.unset() {
		c.within("qp_wq_dbr_qmem", func(c *checks) { a.QPWQDBRQMem.check(c, dbrAlign) })
	}
}

func (a *QPAttr) checkModify(c *checks) {
	c.known("next_state", a.NextState, a.NextState <= QPStateRTS)
	if extra := a.QPAccessMask &^ qpAccess; extra != 0 {
		c.refuse("qp_access_mask", "%#x: a QP takes IBV_ACCESS_LOCAL_WRITE, _REMOTE_WRITE, _REMOTE_READ and _REMOTE_ATOMIC", uint32(a.QPAccessMask))
	}
	c.known("path_mtu", a.PathMTU, a.PathMTU <= QPMTU4K)
	if n := len(a.DestMAC); n != 0 && n != 6 {
		c.refuse("dest_mac", "%d bytes, a MAC address has 6", n)
	}
	c.fits("remote_qp_num", uint64(a.RemoteQPNum), 24)
	c.fits("next_send_psn", uint64(a.NextSendPSN), 24)
	c.fits("next_rcv_psn", uint64(a.NextRcvPSN), 24)
	c.fits("min_rnr_nak_timer", uint64(a.MinRNRNAKTimer), 5)
	c.fits("retry_count", uint64(a.RetryCount), 3)
	c.fits("log_rra_max", uint64(a.LogRRAMax), 3)
	c.fits("log_sra_max", uint64(a.LogSRAMax), 3)
}

// QPAttrOptParamMask is flexio_qp_attr_opt_param_mask: the optional attributes to modify.
type QPAttrOptParamMask struct {
	MinRNRNAKTimer bool `ref:"min_rnr_nak_timer"`
	QPAccessMask   bool `ref:"qp_access_mask"`
}
