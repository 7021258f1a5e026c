package ibv

import (
	"fmt"
	"strings"
)

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

// String lists the names as verbs.h spells them.
func (m QPAttrMask) String() string {
	names := [...]string{"STATE", "CUR_STATE", "EN_SQD_ASYNC_NOTIFY", "ACCESS_FLAGS", "PKEY_INDEX", "PORT", "QKEY", "AV",
		"PATH_MTU", "TIMEOUT", "RETRY_CNT", "RNR_RETRY", "RQ_PSN", "MAX_QP_RD_ATOMIC", "ALT_PATH", "MIN_RNR_TIMER",
		"SQ_PSN", "MAX_DEST_RD_ATOMIC", "PATH_MIG_STATE", "CAP", "DEST_QPN", 25: "RATE_LIMIT"}
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

// The states of a path.
const (
	MigMigrated MigState = iota
	MigRearm
	MigArmed
)

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
