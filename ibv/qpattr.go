package ibv

// QPState is enum ibv_qp_state.
type QPState uint32

// The states of a queue pair.
const (
	QPSReset QPState = iota
	QPSInit
	QPSRTR // ready to receive
	QPSRTS // ready to send
	QPSSQD // send queue drained
	QPSSQE // send queue error
	QPSErr
	QPSUnknown
)

func (s QPState) String() string {
	return name("QP state", s, "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR", "UNKNOWN")
}

// QPAttrMask is enum ibv_qp_attr_mask: which fields of a QPAttr are meant.
type QPAttrMask uint32

// The fields.
const (
	QPAttrState QPAttrMask = 1 << iota
	QPAttrCurState
	QPAttrEnSQDAsyncNotify
	QPAttrAccessFlags
	QPAttrPKeyIndex
	QPAttrPort
	QPAttrQKey
	QPAttrAV
	QPAttrPathMTU
	QPAttrTimeout
	QPAttrRetryCnt
	QPAttrRNRRetry
	QPAttrRQPSN
	QPAttrMaxQPRdAtomic
	QPAttrAltPath
	QPAttrMinRNRTimer
	QPAttrSQPSN
	QPAttrMaxDestRdAtomic
	QPAttrPathMigState
	QPAttrCap
	QPAttrDestQPN
	QPAttrRateLimit QPAttrMask = 1 << 25
)

// AccessFlags is enum ibv_access_flags.
type AccessFlags uint32

// The kinds of access to memory, or through a queue pair. Local reads are always allowed.
const (
	AccessLocalWrite AccessFlags = 1 << iota
	AccessRemoteWrite
	AccessRemoteRead
	AccessRemoteAtomic
)

// MigState is enum ibv_mig_state.
type MigState uint32

// The states of a path.
const (
	MigMigrated MigState = iota
	MigRearm
	MigArmed
)

// GlobalRoute is struct ibv_global_route.
type GlobalRoute struct {
	DGID                              GID
	FlowLabel                         uint32
	SGIDIndex, HopLimit, TrafficClass uint8
}

// AHAttr is struct ibv_ah_attr: the way to a peer. On Ethernet IsGlobal must be set.
type AHAttr struct {
	GRH                         GlobalRoute
	DLID                        uint16
	SL, SrcPathBits, StaticRate uint8
	IsGlobal                    bool
	PortNum                     uint8
}

// QPAttr is struct ibv_qp_attr.
type QPAttr struct {
	State, CurState               QPState
	PathMTU                       MTU
	PathMigState                  MigState
	QKey, RQPSN, SQPSN, DestQPNum uint32
	AccessFlags                   AccessFlags
	Cap                           QPCap
	AH, AltAH                     AHAttr
	PKeyIndex, AltPKeyIndex       uint16
	EnSQDAsyncNotify, SQDraining  bool
	MaxRdAtomic, MaxDestRdAtomic  uint8
	MinRNRTimer, PortNum, Timeout uint8
	RetryCnt, RNRRetry            uint8
	AltPortNum, AltTimeout        uint8
	RateLimit                     uint32
}
