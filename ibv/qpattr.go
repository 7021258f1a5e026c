package ibv

import (
	"fmt"
	"strings"
)

// QPAttrMask is enum ibv_qp_attr_mask: which fields of a QPAttr are meant.
type QPAttrMask uint32

// The fields, by the names of IBV_QP_*. QPAttrAV is the field AH.
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

// String lists the names as verbs.h spells them.
func (m QPAttrMask) String() string {
	names := [...]string{
		"STATE", "CUR_STATE", "EN_SQD_ASYNC_NOTIFY", "ACCESS_FLAGS", "PKEY_INDEX", "PORT", "QKEY", "AV",
		"PATH_MTU", "TIMEOUT", "RETRY_CNT", "RNR_RETRY", "RQ_PSN", "MAX_QP_RD_ATOMIC", "ALT_PATH", "MIN_RNR_TIMER",
		"SQ_PSN", "MAX_DEST_RD_ATOMIC", "PATH_MIG_STATE", "CAP", "DEST_QPN",
		25: "RATE_LIMIT",
	}

	var set []string
	for bit := range 32 {
		if m&(1<<bit) == 0 {
			continue
		}
		if bit < len(names) && names[bit] != "" {
			set = append(set, "IBV_QP_"+names[bit])
		} else {
			set = append(set, fmt.Sprintf("1<<%d", bit))
		}
	}
	return strings.Join(set, "|")
}

// MigState is enum ibv_mig_state.
type MigState uint32

// The states of a path, for automatic path migration.
const (
	MigMigrated MigState = iota
	MigRearm
	MigArmed
)

// QPAttr is struct ibv_qp_attr. [QP.Modify] and [QP.Query] use the fields that their mask names;
// ibv_modify_qp(3) says which a transition needs. Numbers of queue pairs and PSNs have 24 bits.
type QPAttr struct {
	State            QPState
	CurState         QPState
	PathMTU          MTU
	PathMigState     MigState
	QKey             uint32
	RQPSN            uint32 // the first PSN that arrives
	SQPSN            uint32 // the first PSN that is sent
	DestQPNum        uint32
	AccessFlags      AccessFlags // of the peer
	Cap              QPCap
	AH               AHAttr
	AltAH            AHAttr
	PKeyIndex        uint16
	AltPKeyIndex     uint16
	EnSQDAsyncNotify bool
	SQDraining       bool  // Query alone sets it
	MaxRdAtomic      uint8 // RDMA reads and atomics that this side has outstanding
	MaxDestRdAtomic  uint8 // RDMA reads and atomics of the peer that this side answers at a time
	MinRNRTimer      uint8 // a code of 5 bits: ibv_modify_qp(3) has the table
	PortNum          uint8
	Timeout          uint8 // 4.096 µs << Timeout; 0: without end
	RetryCnt         uint8 // 3 bits
	RNRRetry         uint8 // 3 bits; 7: without end
	AltPortNum       uint8
	AltTimeout       uint8
	RateLimit        uint32 // kbit/s
}
