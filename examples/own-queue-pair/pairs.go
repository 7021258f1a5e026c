package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/ibv/flexio"
	"github.com/flowtally/flowtally/probe"
)

const (
	// depth is the number of operations that a queue pair has outstanding at most.
	depth = 64
	psn   = 1
	qkey  = 0x11111111 // of SRD
)

// counted are the words: words.Words.
type counted interface {
	Memory() (comp, errs []byte)
	Add(comp, errs uint64)
}

// pairs are two queue pairs of a device that write to each other, and whose completions one counter counts.
type pairs struct {
	dev     *ibv.Context
	closing func(io.Closer)
	pd      *ibv.PD
	cq      *ibv.CQ
	mr      *ibv.MR
	qps     [2]*ibv.QP
	ah      *ibv.AH // of SRD queue pairs: the way to this device

	// count counts the completions that the device has written. polled is the number of completions that Poll has
	// returned since the last call. It returns the number of completions that Poll may return.
	count func(polled int) (ready int, err error)
}

// make makes the queue pairs, and their counter in the words. It returns how they are counted.
func (p *pairs) make(w counted, o options) (how string, err error) {
	if p.pd, err = p.dev.AllocPD(); err != nil {
		return "", err
	}
	p.closing(p.pd)
	if p.mr, err = p.pd.AllocMR(4096, ibv.AccessLocalWrite|ibv.AccessRemoteWrite); err != nil {
		return "", err
	}
	p.closing(p.mr)

	// The completion counter comes before the queue pairs that it is attached to.
	k, err := p.counter(w)
	if err != nil {
		return "", err
	}
	if err := p.createCQ(o); err != nil {
		return "", err
	}
	how = "comp_cntr"
	p.count = func(int) (int, error) { return depth, nil } // the device does it
	if k == nil {
		how = "cq_ring"
		if err := p.countRing(w, o); err != nil {
			return "", err
		}
	}

	// EFA has no connected queue pairs; its reliable ones are datagrams.
	typ := ibv.QPTRC
	if _, err := p.dev.QueryEFA(); err == nil {
		typ = ibv.QPTSRD
	}
	for i := range p.qps {
		if p.qps[i], err = p.pd.CreateQP(ibv.QPOptions{
			Type:   typ,
			SendCQ: p.cq,
			RecvCQ: p.cq,
			Cap:    ibv.QPCap{MaxSendWR: depth, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
		}); err != nil {
			return "", err
		}
		p.closing(p.qps[i])
		if k != nil { // one counter for both queue pairs
			if err := p.qps[i].AttachCompCntr(k, ibv.QPAttachCompCntrOpRDMAWrite); err != nil {
				return "", err
			}
		}
	}

	path, err := way(p.dev, o.gidIndex)
	if err != nil {
		return "", err
	}
	if typ == ibv.QPTSRD {
		return how, p.address(path)
	}
	for i, q := range p.qps {
		if err := connect(p.dev, q, p.qps[1-i].Number(), path); err != nil {
			return "", err
		}
	}
	return how, nil
}

// counter makes a completion counter in the words. It returns nil if the device has none.
func (p *pairs) counter(w counted) (*ibv.CompCntr, error) {
	comp, errs := w.Memory()
	k, err := p.dev.CreateCompCntr(ibv.CompCntrOptions{External: &ibv.CompCntrMemory{Comp: comp, Err: errs}})
	switch {
	case err == nil:
		p.closing(k)
		return k, nil
	case errors.Is(err, probe.ErrNotSupported):
		return nil, nil
	}
	return nil, err
}

// createCQ makes the completion queue of both queue pairs.
func (p *pairs) createCQ(o options) (err error) {
	queue := ibv.CQOptions{CQE: 4 * depth}
	if o.compress {
		p.cq, err = p.dev.CreateMLX5CQ(ibv.MLX5CQOptions{CQOptions: queue, Compression: ibv.MLX5CompressHash})
	} else {
		p.cq, err = p.dev.CreateCQ(queue)
	}
	if err == nil {
		p.closing(p.cq)
	}
	return err
}

// countRing counts the entries of the completion queue where the device writes them.
func (p *pairs) countRing(w counted, o options) error {
	m, err := p.cq.MLX5Ring()
	if err != nil {
		return err
	}
	how := flexio.RingOptions{EntrySize: m.CQESize}
	if o.compress {
		how.Compression = flexio.Basic
		how.Format = flexio.MiniHash
		how.Expand = true
	}
	ring, err := flexio.NewRing(m.Buf, how)
	if err != nil {
		return err
	}

	counter := flexio.NewRingCounter(ring, w.Add, nil)
	ready := 0
	p.count = func(polled int) (int, error) {
		n, err := counter.Count(polled)
		ready += n - polled
		return ready, err
	}
	return nil
}

// way returns the address of the device itself: its messages come back to it.
func way(dev *ibv.Context, gidIndex int) (ibv.AHAttr, error) {
	gid, err := dev.QueryGID(1, gidIndex)
	return ibv.AHAttr{
		IsGlobal: true,
		PortNum:  1,
		GRH:      ibv.GlobalRoute{DGID: gid, SGIDIndex: uint8(gidIndex), HopLimit: 64},
	}, err
}

// step is a change of a queue pair's state.
type step struct {
	attr ibv.QPAttr
	mask ibv.QPAttrMask
}

// modifier is a queue pair, of the verbs or of DevX.
type modifier interface {
	Modify(a ibv.QPAttr, mask ibv.QPAttrMask) error
}

// bring takes a queue pair through the steps.
func bring(q modifier, steps ...step) error {
	for _, s := range steps {
		if err := q.Modify(s.attr, s.mask|ibv.QPAttrState); err != nil {
			return err
		}
	}
	return nil
}

// connect brings a queue pair of type RC to RTS, connected to the queue pair with the number to.
func connect(dev *ibv.Context, q modifier, to uint32, way ibv.AHAttr) error {
	port, err := dev.QueryPort(1)
	if err != nil {
		return err
	}
	return bring(q,
		step{ibv.QPAttr{State: ibv.QPSInit, PortNum: 1, AccessFlags: ibv.AccessRemoteWrite}, ibv.QPAttrPort | ibv.QPAttrPKeyIndex | ibv.QPAttrAccessFlags},
		step{
			ibv.QPAttr{State: ibv.QPSRTR, PathMTU: port.ActiveMTU, DestQPNum: to, RQPSN: psn, MaxDestRdAtomic: 1, MinRNRTimer: 12, AH: way},
			ibv.QPAttrAV | ibv.QPAttrPathMTU | ibv.QPAttrDestQPN | ibv.QPAttrRQPSN | ibv.QPAttrMaxDestRdAtomic | ibv.QPAttrMinRNRTimer,
		},
		step{
			ibv.QPAttr{State: ibv.QPSRTS, SQPSN: psn, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 1},
			ibv.QPAttrSQPSN | ibv.QPAttrTimeout | ibv.QPAttrRetryCnt | ibv.QPAttrRNRRetry | ibv.QPAttrMaxQPRdAtomic,
		})
}

// address brings both queue pairs, of type SRD, to RTS. Each of their requests names its destination.
func (p *pairs) address(way ibv.AHAttr) (err error) {
	if p.ah, err = p.pd.CreateAH(way); err != nil {
		return err
	}
	p.closing(p.ah)
	for _, q := range p.qps {
		if err := bring(q,
			step{ibv.QPAttr{State: ibv.QPSInit, PortNum: 1, QKey: qkey}, ibv.QPAttrPort | ibv.QPAttrPKeyIndex | ibv.QPAttrQKey},
			step{ibv.QPAttr{State: ibv.QPSRTR}, 0},
			step{ibv.QPAttr{State: ibv.QPSRTS, SQPSN: psn}, ibv.QPAttrSQPSN}); err != nil {
			return err
		}
	}
	return nil
}

// post posts n writes of queue pair i.
func (p *pairs) post(i, n int) error {
	requests := make([]ibv.SendWR, n)
	for at := range requests {
		r := &requests[at]
		r.Opcode = ibv.WRRDMAWrite
		r.Flags = ibv.SendSignaled
		r.SGE = ibv.SGE{Addr: p.mr.Addr(), Length: 64, LKey: p.mr.LKey()}
		r.RemoteAddr = p.mr.Addr() + 1024
		r.RKey = p.mr.RKey()
		if p.ah != nil {
			r.AH = p.ah
			r.RemoteQPN = p.qps[1-i].Number()
			r.RemoteQKey = qkey
		}
	}
	_, err := p.qps[i].PostSend(requests)
	return err
}

// write posts count writes of each queue pair, without end if count is 0, and waits until all have completed.
func (p *pairs) write(count int) error {
	var done [depth]ibv.WC
	posted := 0      // of each queue pair
	outstanding := 0 // of both
	n := 0           // completions of the last Poll
	for posted < count || count == 0 || outstanding > 0 {
		if outstanding == 0 {
			some := depth / 2
			if count > 0 {
				some = min(some, count-posted)
			}
			for i := range p.qps {
				if err := p.post(i, some); err != nil {
					return err
				}
			}
			posted += some
			outstanding = len(p.qps) * some
		}

		ready, err := p.count(n)
		if err != nil {
			return err
		}
		if n, err = p.cq.Poll(done[:min(ready, depth)]); err != nil {
			return err
		}
		for _, wc := range done[:n] {
			if wc.Status != ibv.WCSuccess {
				return fmt.Errorf("queue pair %d: %v", wc.QPNum, wc.Status)
			}
		}
		outstanding -= n
		if n == 0 {
			time.Sleep(time.Microsecond)
		}
	}
	return nil
}
