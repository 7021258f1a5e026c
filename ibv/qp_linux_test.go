//go:build cgo

package ibv

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
)

// needed are the masks required by ibv_modify_qp(3) on the way to RTS.
func needed(typ QPType, to QPState) QPAttrMask {
	for _, m := range transitionsByType[typ] {
		if m.to == to && m.from == to-1 {
			return m.need | QPAttrState
		}
	}
	return QPAttrState
}

// attrs has a valid value in every field.
func attrs(to QPState) QPAttr {
	ah := AHAttr{GRH: GlobalRoute{HopLimit: 1}, IsGlobal: true, PortNum: 1}
	return QPAttr{
		State: to, PathMTU: MTU1024, PortNum: 1, QKey: 7, DestQPNum: 1, RQPSN: 1, SQPSN: 1, AH: ah, AltAH: ah, AltPortNum: 1,
		AccessFlags: AccessLocalWrite, MaxRdAtomic: 1, MaxDestRdAtomic: 1, MinRNRTimer: 12, Timeout: 14, RetryCnt: 7, RNRRetry: 7,
	}
}

// ways lists how a queue pair gets to each state from RESET.
func ways() map[QPState][]QPState {
	up := []QPState{QPSInit, QPSRTR, QPSRTS}
	return map[QPState][]QPState{
		QPSReset: nil, QPSInit: up[:1], QPSRTR: up[:2], QPSRTS: up, QPSSQD: append(slices.Clone(up), QPSSQD), QPSErr: {QPSInit, QPSErr},
	}
}

// Every change of state of every type is tried with the masks around the required one. The library
// must accept exactly the calls accepted by checkModify, and a refused call must leave the state
// alone.
func TestCheckModifyAgreesWithTheLibrary(t *testing.T) {
	b := newLibrary(t, newWire(t), "")
	b.open()
	pd := must(b.ctx.AllocPD())(t)
	b.closes(pd)
	cq := must(b.ctx.CreateCQ(CQOptions{CQE: 4}))(t)
	b.closes(cq)
	if cq.CQE() < 4 {
		t.Errorf("a queue of %d entries, 4 were asked for", cq.CQE())
	}
	for _, typ := range []QPType{QPTRawPacket, QPTUD, QPTRC} {
		tried, taken := 0, 0
		for from, way := range ways() {
			for to := QPSReset; to <= QPSErr; to++ {
				need := QPAttrState
				for _, m := range transitionsByType[typ] {
					if m.from == from && m.to == to {
						need |= m.need
					}
				}
				masks := []QPAttrMask{need, need | QPAttrQKey, need | QPAttrPathMTU, need | QPAttrPort}
				for bit := QPAttrMask(1); bit <= QPAttrDestQPN; bit <<= 1 {
					if need&bit != 0 && bit != QPAttrState {
						masks = append(masks, need&^bit)
					}
				}
				for _, mask := range masks {
					q := must(pd.CreateQP(QPOptions{Type: typ, SendCQ: cq, RecvCQ: cq, Cap: smallCap}))(t)
					for _, s := range way {
						if err := q.Modify(attrs(s), needed(typ, s)); err != nil {
							t.Fatalf("%v on the way to %v: %v", typ, from, err)
						}
					}
					want := checkModify(typ, from, to, mask)
					err := q.Modify(attrs(to), mask)
					what := fmt.Sprintf("%v, %v to %v with %v", typ, from, to, mask)
					if (err == nil) != (want == nil) {
						t.Errorf("%s: the library says %v, the manual %v", what, err, want)
					}
					var e *Error
					if err != nil && (!errors.As(err, &e) || !errors.Is(err, syscall.EINVAL)) {
						t.Errorf("%s: %v is no EINVAL of a verb", what, err)
					}
					now := from
					if err == nil {
						now, taken = to, taken+1
					}
					if a := must(q.Query(QPAttrState))(t); a.State != now {
						t.Errorf("%s: now in %v", what, a.State)
					}
					b.check(q.Close())
					tried++
				}
			}
		}
		t.Logf("%v: %d of %d calls taken", typ, taken, tried)
		if tried < 100 || taken < 10 || taken == tried {
			t.Errorf("%v: %d of %d calls were taken", typ, taken, tried)
		}
	}
}

func TestQPAttributesAreReadBackAsSet(t *testing.T) {
	b := newLibrary(t, newWire(t), "")
	b.open()
	pd := must(b.ctx.AllocPD())(t)
	b.closes(pd)
	cq := must(b.ctx.CreateCQ(CQOptions{}))(t)
	b.closes(cq)
	q := must(pd.CreateQP(QPOptions{Type: QPTRC, SendCQ: cq, RecvCQ: cq, Cap: QPCap{MaxSendWR: 3, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}}))(t)
	b.closes(q)
	a := attrs(QPSInit)
	b.check(q.Modify(a, needed(QPTRC, QPSInit)))
	a = attrs(QPSRTR)
	a.AH.GRH.DGID, a.AH.GRH.FlowLabel, a.AH.SL, a.RQPSN, a.DestQPNum = [16]byte{0xfe, 0x80, 15: 1}, 0xabcde, 5, 0x123456, 0x654321
	b.check(q.Modify(a, needed(QPTRC, QPSRTR)))
	got := must(q.Query(QPAttrState | QPAttrAV | QPAttrPathMTU | QPAttrDestQPN | QPAttrRQPSN | QPAttrMinRNRTimer | QPAttrCap | QPAttrPort))(t)
	if got.State != QPSRTR || got.AH != a.AH || got.PathMTU != a.PathMTU || got.DestQPNum != a.DestQPNum || got.RQPSN != a.RQPSN || got.MinRNRTimer != 12 || got.PortNum != 1 {
		t.Errorf("set %+v, got %+v", a, got)
	}
	if got.Cap.MaxSendWR < 3 || got.Cap.MaxRecvWR < 4 || q.Number() == 0 || q.typ != QPTRC {
		t.Errorf("a queue pair %d of type %v and %+v", q.Number(), q.typ, got.Cap)
	}
	if n, err := cq.Poll(make([]WC, 40)); n != 0 || err != nil {
		t.Errorf("an empty queue: %d, %v", n, err)
	}
}
