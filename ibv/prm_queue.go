package ibv

import "math/bits"

// Opcodes of the commands for queues (mlx5_ifc.h, MLX5_CMD_OP_*).
const (
	opCreateQP   = 0x500
	opRst2InitQP = 0x502
	opInit2RTRQP = 0x503
	opRTR2RTSQP  = 0x504
	op2ErrQP     = 0x507
	op2RstQP     = 0x50a
	opQueryQP    = 0x50b
)

// modifyNames are the names of the commands that change a queue pair's state.
var modifyNames = map[uint16]string{
	opRst2InitQP: "RST2INIT_QP", opInit2RTRQP: "INIT2RTR_QP", opRTR2RTSQP: "RTR2RTS_QP", op2ErrQP: "2ERR_QP", op2RstQP: "2RST_QP",
}

// Sizes in bytes of the commands' input and output, without a list of pages.
const (
	createQPInSize = 272
	modifyQPInSize = 272
	queryQPOutSize = 272
)

// Bits before the context in the commands, and before the path in the context of a queue pair.
const (
	qpcBit  = 0xc0
	pathBit = qpcBit + 0xc0
)

// queueOut is struct mlx5_ifc_create_cq_out_bits, and equals that of CREATE_QP.
type queueOut struct {
	prmStatus
	Number uint32
}

func (q *queueOut) prm(c *prmCodec) {
	q.prmStatus.prm(c)
	field(c, "number", 0x48, 0x18, &q.Number)
}

// createQPIn is struct mlx5_ifc_create_qp_in_bits, with the fields of a reliable connection whose queues are in a umem:
// receives of 16 bytes, and behind them the sends.
type createQPIn struct {
	PD             uint32
	LogRQ, LogSQ   uint8
	UARPage        uint32
	SendCQ, RecvCQ uint32
	WQUMEM         uint32
	DBRUMEM        uint32
	DBROffset      uint64
}

func (q *createQPIn) prm(c *prmCodec) {
	valid := true
	migrated := uint8(3)      // MLX5_QP_PM_MIGRATED: there is no other path
	defaultStamps := uint8(1) // MLX5_QPC_TIMESTAMP_FORMAT_DEFAULT
	prmHeader(c, opCreateQP, 0)
	field(c, "pm_state", qpcBit+0x13, 0x02, &migrated)
	field(c, "pd", qpcBit+0x28, 0x18, &q.PD)
	field(c, "log_rq_size", qpcBit+0x49, 0x04, &q.LogRQ)
	field(c, "log_sq_size", qpcBit+0x51, 0x04, &q.LogSQ)
	field(c, "ts_format", qpcBit+0x58, 0x02, &defaultStamps)
	field(c, "uar_page", qpcBit+0x68, 0x18, &q.UARPage)
	field(c, "cqn_snd", qpcBit+0x3e8, 0x18, &q.SendCQ)
	field(c, "cqn_rcv", qpcBit+0x4e8, 0x18, &q.RecvCQ)
	field(c, "dbr_addr", qpcBit+0x500, 0x40, &q.DBROffset)
	flag(c, "dbr_umem_valid", qpcBit+0x683, &valid)
	field(c, "dbr_umem_id", qpcBit+0x720, 0x20, &q.DBRUMEM)
	field(c, "wq_umem_id", 0x840, 0x20, &q.WQUMEM)
	flag(c, "wq_umem_valid", 0x860, &valid)
}

// modifyQPIn is the input of the commands that change the state of a queue pair, and of QUERY_QP. Each encodes its own
// fields, because firmware may refuse those of another one.
type modifyQPIn struct {
	opcode uint16
	QPN    uint32

	// RST2INIT
	PKeyIndex uint16
	Port      uint8 // of all three
	RRE, RWE  bool

	// INIT2RTR
	MTU, LogRRAMax, MinRNRNAK     uint8
	RemoteQPN, RecvPSN            uint32
	GRH                           bool
	RLID, UDPSPort                uint16
	SGIDIndex, HopLimit, TClass   uint8
	StaticRate, EthPrio, SL, MLID uint8
	FlowLabel                     uint32
	RGID                          [16]byte
	RMAC                          [6]byte

	// RTR2RTS
	LogSRAMax, RetryCount, RNRRetry, AckTimeout uint8
	SendPSN                                     uint32
}

func (m *modifyQPIn) toInit(a *QPAttr) {
	m.opcode = opRst2InitQP
	m.PKeyIndex = a.PKeyIndex
	m.Port = a.PortNum
	m.RRE = a.AccessFlags&AccessRemoteRead != 0
	m.RWE = a.AccessFlags&AccessRemoteWrite != 0
}

// toRTR sets the fields as the kernel's mlx5_set_path does. On Ethernet the path has the peer's hardware address; else it
// has a LID, and a GRH only if the path names a GID.
func (m *modifyQPIn) toRTR(a *QPAttr, mac [6]byte, port uint16) {
	m.opcode = opInit2RTRQP
	m.Port = a.AH.PortNum
	m.MTU = uint8(a.PathMTU)
	m.LogRRAMax = logOf(a.MaxDestRdAtomic)
	m.MinRNRNAK = a.MinRNRTimer
	m.RemoteQPN = a.DestQPNum
	m.RecvPSN = a.RQPSN
	m.StaticRate = a.AH.StaticRate
	if mac != ([6]byte{}) {
		m.RMAC = mac
		m.UDPSPort = port
		m.EthPrio = a.AH.SL & 7
	} else {
		m.RLID = a.AH.DLID
		m.MLID = a.AH.SrcPathBits
		m.SL = a.AH.SL
		m.GRH = a.AH.IsGlobal
	}
	if a.AH.IsGlobal {
		m.SGIDIndex = a.AH.GRH.SGIDIndex
		m.HopLimit = a.AH.GRH.HopLimit
		m.TClass = a.AH.GRH.TrafficClass
		m.FlowLabel = a.AH.GRH.FlowLabel
		m.RGID = [16]byte(a.AH.GRH.DGID)
	}
}

func (m *modifyQPIn) toRTS(a *QPAttr) {
	m.opcode = opRTR2RTSQP
	m.LogSRAMax = logOf(a.MaxRdAtomic)
	m.RetryCount = a.RetryCnt
	m.RNRRetry = a.RNRRetry
	m.AckTimeout = a.Timeout
	m.SendPSN = a.SQPSN
}

// logOf returns the logarithm of a number of outstanding reads, rounded up. Firmware has none for 0.
func logOf(n uint8) uint8 { return uint8(bits.Len8(max(n, 1) - 1)) }

func (m *modifyQPIn) prm(c *prmCodec) {
	prmHeader(c, m.opcode, 0)
	field(c, "qpn", 0x48, 0x18, &m.QPN)
	switch m.opcode {
	case opRst2InitQP:
		migrated := uint8(3)
		field(c, "pm_state", qpcBit+0x13, 0x02, &migrated)
		flag(c, "rre", qpcBit+0x490, &m.RRE)
		flag(c, "rwe", qpcBit+0x491, &m.RWE)
		field(c, "pkey_index", pathBit+0x10, 0x10, &m.PKeyIndex)
		field(c, "vhca_port_num", pathBit+0x128, 0x08, &m.Port)
	case opInit2RTRQP:
		longest := uint8(30) // of a message: 2^30 bytes, the most that a device has
		field(c, "mtu", qpcBit+0x40, 0x03, &m.MTU)
		field(c, "log_msg_max", qpcBit+0x43, 0x05, &longest)
		field(c, "remote_qpn", qpcBit+0xa8, 0x18, &m.RemoteQPN)
		field(c, "log_rra_max", qpcBit+0x488, 0x03, &m.LogRRAMax)
		field(c, "min_rnr_nak", qpcBit+0x4a3, 0x05, &m.MinRNRNAK)
		field(c, "next_rcv_psn", qpcBit+0x4a8, 0x18, &m.RecvPSN)
		m.path(c)
	case opRTR2RTSQP:
		field(c, "ack_timeout", pathBit+0x40, 0x05, &m.AckTimeout)
		field(c, "vhca_port_num", pathBit+0x128, 0x08, &m.Port)
		field(c, "log_sra_max", qpcBit+0x388, 0x03, &m.LogSRAMax)
		field(c, "retry_count", qpcBit+0x38d, 0x03, &m.RetryCount)
		field(c, "rnr_retry", qpcBit+0x390, 0x03, &m.RNRRetry)
		field(c, "next_send_psn", qpcBit+0x3c8, 0x18, &m.SendPSN)
	}
}

// path walks struct mlx5_ifc_ads_bits.
func (m *modifyQPIn) path(c *prmCodec) {
	flag(c, "grh", pathBit+0x28, &m.GRH)
	field(c, "mlid", pathBit+0x29, 0x07, &m.MLID)
	field(c, "rlid", pathBit+0x30, 0x10, &m.RLID)
	field(c, "src_addr_index", pathBit+0x48, 0x08, &m.SGIDIndex)
	field(c, "stat_rate", pathBit+0x54, 0x04, &m.StaticRate)
	field(c, "hop_limit", pathBit+0x58, 0x08, &m.HopLimit)
	field(c, "tclass", pathBit+0x64, 0x08, &m.TClass)
	field(c, "flow_label", pathBit+0x6c, 0x14, &m.FlowLabel)
	octets(c, "rgid_rip", pathBit+0x80, m.RGID[:])
	field(c, "udp_sport", pathBit+0x110, 0x10, &m.UDPSPort)
	field(c, "eth_prio", pathBit+0x121, 0x03, &m.EthPrio)
	field(c, "sl", pathBit+0x124, 0x04, &m.SL)
	field(c, "vhca_port_num", pathBit+0x128, 0x08, &m.Port)
	octets(c, "rmac", pathBit+0x130, m.RMAC[:])
}

// queryQPOut is the part of struct mlx5_ifc_query_qp_out_bits about the state.
type queryQPOut struct{ State uint8 }

func (q *queryQPOut) prm(c *prmCodec) { field(c, "state", qpcBit, 0x04, &q.State) }
