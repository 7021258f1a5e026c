package ibv

import (
	"fmt"
	"strings"
)

// QPAttrMask is enum ibv_qp_attr_mask: a set of fields of QPAttr.
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

// String returns the names of verbs.h, for example "IBV_QP_STATE|IBV_QP_PORT".
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

// The states of automatic path migration.
const (
	MigMigrated MigState = iota
	MigRearm
	MigArmed
)

// QPAttr is struct ibv_qp_attr. [QP.Modify] and [QP.Query] use the fields named by their mask. See
// ibv_modify_qp(3) for the fields required by a transition. Numbers of queue pairs and PSNs have 24 bits.
type QPAttr struct {
	State            QPState
	CurState         QPState
	PathMTU          MTU
	PathMigState     MigState
	QKey             uint32
	RQPSN            uint32 // of the first arriving packet
	SQPSN            uint32 // of the first sent packet
	DestQPNum        uint32
	AccessFlags      AccessFlags // allowed to the peer
	Cap              QPCap
	AH               AHAttr
	AltAH            AHAttr
	PKeyIndex        uint16
	AltPKeyIndex     uint16
	EnSQDAsyncNotify bool
	SQDraining       bool  // only for Query
	MaxRdAtomic      uint8 // outstanding RDMA reads and atomics of this side
	MaxDestRdAtomic  uint8 // concurrent RDMA reads and atomics of the peer, answered by this side
	MinRNRTimer      uint8 // a code of 5 bits; see the table in ibv_modify_qp(3)
	PortNum          uint8
	Timeout          uint8 // 4.096 µs << Timeout; 0: no limit
	RetryCnt         uint8 // 3 bits
	RNRRetry         uint8 // 3 bits; 7: no limit
	AltPortNum       uint8
	AltTimeout       uint8
	RateLimit        uint32 // kbit/s
}
