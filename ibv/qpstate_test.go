package ibv

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

// The cases are the examples of ibv_modify_qp(3), each with one attribute left out.
func TestCheckModifyNamesMissingAttributes(t *testing.T) {
	const rcRTR = QPAttrState | QPAttrAV | QPAttrPathMTU | QPAttrDestQPN | QPAttrRQPSN | QPAttrMaxDestRdAtomic | QPAttrMinRNRTimer
	for _, c := range []struct {
		name     string
		typ      QPType
		from, to QPState
		mask     QPAttrMask
		want     string // in the error; "": allowed
	}{
		{"raw to INIT", QPTRawPacket, QPSReset, QPSInit, QPAttrState | QPAttrPort, ""},
		{"raw to INIT without a port", QPTRawPacket, QPSReset, QPSInit, QPAttrState, "lacking IBV_QP_PORT"},
		{"raw to RTR", QPTRawPacket, QPSInit, QPSRTR, QPAttrState, ""},
		{"raw skipping INIT", QPTRawPacket, QPSReset, QPSRTR, QPAttrState, "no such transition"},
		{"UD to INIT", QPTUD, QPSReset, QPSInit, QPAttrState | QPAttrPKeyIndex | QPAttrPort | QPAttrQKey, ""},
		{"UD to INIT without a Q_Key", QPTUD, QPSReset, QPSInit, QPAttrState | QPAttrPKeyIndex | QPAttrPort, "lacking IBV_QP_QKEY"},
		{"UD to RTS", QPTUD, QPSRTR, QPSRTS, QPAttrState | QPAttrSQPSN, ""},
		{"RC to RTR", QPTRC, QPSInit, QPSRTR, rcRTR, ""},
		{"RC to RTR without a peer", QPTRC, QPSInit, QPSRTR, rcRTR &^ QPAttrDestQPN &^ QPAttrAV, "lacking IBV_QP_AV|IBV_QP_DEST_QPN"},
		{"RC to RTR with a Q_Key", QPTRC, QPSInit, QPSRTR, rcRTR | QPAttrQKey, "IBV_QP_QKEY cannot be set"},
		{"SQD does not reach INIT", QPTRC, QPSSQD, QPSInit, QPAttrState, "no such transition"},
		{"RESET does not err", QPTRC, QPSReset, QPSErr, QPAttrState, "no such transition"},
		{"the current state where it is allowed", QPTUD, QPSRTR, QPSRTS, QPAttrState | QPAttrSQPSN | QPAttrCurState, ""},
		{"and where not", QPTUD, QPSInit, QPSRTR, QPAttrState | QPAttrCurState, "IBV_QP_CUR_STATE cannot be set"},
		{"UD leaves SQE", QPTUD, QPSSQE, QPSRTS, QPAttrState, ""},
		{"RTS drains", QPTRC, QPSRTS, QPSSQD, QPAttrState | QPAttrEnSQDAsyncNotify, ""},
		{"anything resets", QPTRC, QPSErr, QPSReset, QPAttrState, ""},
		{"anything errs", QPTUD, QPSRTS, QPSErr, QPAttrState, ""},
		{"with nothing beside", QPTUD, QPSRTS, QPSErr, QPAttrState | QPAttrQKey, "IBV_QP_QKEY cannot be set"},
		{"an unknown type", 99, QPSReset, QPSInit, QPAttrState, "QP type 99"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := checkModify(c.typ, c.from, c.to, c.mask)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, syscall.EINVAL)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// From RESET, transitions of the table lead to every state and back.
func TestEveryStateIsReached(t *testing.T) {
	for typ, moves := range transitionsByType {
		reached := map[QPState]bool{QPSReset: true, QPSErr: true}
		for range moves {
			for _, m := range moves {
				reached[m.to] = reached[m.to] || reached[m.from]
			}
		}
		for _, s := range []QPState{QPSInit, QPSRTR, QPSRTS, QPSSQD} {
			if !reached[s] {
				t.Errorf("%v never gets to %v", typ, s)
			}
		}
		for _, m := range moves {
			if m.need&m.may != 0 || m.need&QPAttrState != 0 {
				t.Errorf("%v, %v to %v: a mask is both needed and optional", typ, m.from, m.to)
			}
		}
	}
}
