package ibv

import (
	"fmt"
	"syscall"
)

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

// transition is the rule of ibv_modify_qp(3) for one change of state. Besides IBV_QP_STATE, a call needs the
// attributes in need, and may set those in may.
type transition struct {
	from, to QPState
	need     QPAttrMask
	may      QPAttrMask
}

// transitionsByType contains the tables of ibv_modify_qp(3). The manual leaves optional attributes and the
// draining of a send queue to the kernel, so these come from ib_modify_qp_is_ok. Two rules are missing here:
// every state can change to RESET, and every state except RESET to ERR, both without further attributes.
var transitionsByType = map[QPType][]transition{
	QPTRawPacket: {
		{QPSReset, QPSInit, QPAttrPort, 0},
		{QPSInit, QPSInit, 0, 0},
		{QPSInit, QPSRTR, 0, 0},
		{QPSRTR, QPSRTS, 0, QPAttrRateLimit},
		{QPSRTS, QPSRTS, 0, QPAttrRateLimit},
		{QPSRTS, QPSSQD, 0, 0},
		{QPSSQD, QPSRTS, 0, 0},
		{QPSSQD, QPSSQD, 0, 0},
		{QPSSQE, QPSRTS, 0, 0},
	},
	QPTUD: {
		{QPSReset, QPSInit, QPAttrPKeyIndex | QPAttrPort | QPAttrQKey, 0},
		{QPSInit, QPSInit, 0, QPAttrPKeyIndex | QPAttrPort | QPAttrQKey},
		{QPSInit, QPSRTR, 0, QPAttrPKeyIndex | QPAttrQKey},
		{QPSRTR, QPSRTS, QPAttrSQPSN, QPAttrCurState | QPAttrQKey},
		{QPSRTS, QPSRTS, 0, QPAttrCurState | QPAttrQKey},
		{QPSRTS, QPSSQD, 0, QPAttrEnSQDAsyncNotify},
		{QPSSQD, QPSRTS, 0, QPAttrCurState | QPAttrQKey},
		{QPSSQD, QPSSQD, 0, QPAttrPKeyIndex | QPAttrQKey},
		{QPSSQE, QPSRTS, 0, QPAttrCurState | QPAttrQKey},
	},
	QPTSRD: { // srd_qp_state_table of the kernel's efa_verbs.c
		{QPSReset, QPSInit, QPAttrPKeyIndex | QPAttrPort | QPAttrQKey, 0},
		{QPSInit, QPSInit, 0, QPAttrPKeyIndex | QPAttrPort | QPAttrQKey},
		{QPSInit, QPSRTR, 0, QPAttrPKeyIndex | QPAttrQKey},
		{QPSRTR, QPSRTS, QPAttrSQPSN, QPAttrCurState | QPAttrQKey | QPAttrRNRRetry},
		{QPSRTS, QPSRTS, 0, QPAttrCurState | QPAttrQKey},
		{QPSRTS, QPSSQD, 0, QPAttrEnSQDAsyncNotify},
		{QPSSQD, QPSRTS, 0, QPAttrCurState | QPAttrQKey},
		{QPSSQD, QPSSQD, 0, QPAttrPKeyIndex | QPAttrQKey},
		{QPSSQE, QPSRTS, 0, QPAttrCurState | QPAttrQKey},
	},
	QPTRC: {
		{QPSReset, QPSInit, QPAttrPKeyIndex | QPAttrPort | QPAttrAccessFlags, 0},
		{QPSInit, QPSInit, 0, QPAttrPKeyIndex | QPAttrPort | QPAttrAccessFlags},
		{QPSInit, QPSRTR, QPAttrAV | QPAttrPathMTU | QPAttrDestQPN | QPAttrRQPSN | QPAttrMaxDestRdAtomic | QPAttrMinRNRTimer,
			QPAttrAltPath | QPAttrAccessFlags | QPAttrPKeyIndex},
		{QPSRTR, QPSRTS, QPAttrTimeout | QPAttrRetryCnt | QPAttrRNRRetry | QPAttrSQPSN | QPAttrMaxQPRdAtomic,
			QPAttrCurState | QPAttrAltPath | QPAttrAccessFlags | QPAttrMinRNRTimer | QPAttrPathMigState},
		{QPSRTS, QPSRTS, 0, QPAttrCurState | QPAttrAccessFlags | QPAttrAltPath | QPAttrPathMigState | QPAttrMinRNRTimer},
		{QPSRTS, QPSSQD, 0, QPAttrEnSQDAsyncNotify},
		{QPSSQD, QPSRTS, 0, QPAttrCurState | QPAttrAltPath | QPAttrAccessFlags | QPAttrMinRNRTimer | QPAttrPathMigState},
		{QPSSQD, QPSSQD, 0, QPAttrPort | QPAttrAV | QPAttrTimeout | QPAttrRetryCnt | QPAttrRNRRetry | QPAttrMaxQPRdAtomic |
			QPAttrMaxDestRdAtomic | QPAttrAltPath | QPAttrPKeyIndex | QPAttrAccessFlags |
			QPAttrMinRNRTimer | QPAttrPathMigState},
		{QPSSQE, QPSRTS, 0, 0},
	},
}

// findTransition returns the manual's rule for a change of state. If the manual forbids it, ok is false.
func findTransition(t QPType, from, to QPState) (_ transition, ok bool) {
	if to == QPSReset || to == QPSErr && from != QPSReset {
		return transition{from: from, to: to}, true
	}
	for _, rule := range transitionsByType[t] {
		if rule.from == from && rule.to == to {
			return rule, true
		}
	}
	return transition{}, false
}

// checkModify compares a change of state with the manual. Its error names the missing or the forbidden
// attributes of mask. Use it to explain an error of the device, not to predict one: the device decides.
func checkModify(t QPType, from, to QPState, mask QPAttrMask) error {
	what := fmt.Sprintf("modifying a queue pair of type %v from %v to %v", t, from, to)

	rule, ok := findTransition(t, from, to)
	if !ok {
		return fmt.Errorf("%s: there is no such transition: %w", what, syscall.EINVAL)
	}
	if missing := rule.need &^ mask; missing != 0 {
		return fmt.Errorf("%s: lacking %v: %w", what, missing, syscall.EINVAL)
	}
	if surplus := mask &^ (rule.need | rule.may | QPAttrState); surplus != 0 {
		return fmt.Errorf("%s: %v cannot be set then: %w", what, surplus, syscall.EINVAL)
	}
	return nil
}
