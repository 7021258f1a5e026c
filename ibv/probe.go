package ibv

import (
	"crypto/rand"
	"errors"
	"fmt"
	"syscall"

	"github.com/flowtally/flowtally/probe"
)

// The features reported by [Probe].
const (
	FeatureRaw       = "raw privilege"
	FeatureFlows     = "flows"
	FeatureCounters  = "flow counters"
	FeatureDontTrap  = "count without stealing (DONT_TRAP)"
	FeatureEgress    = "count sent packets (EGRESS)"
	FeatureCompCntrs = "completion counters"
)

// flowFeatures are the features that need a queue pair, in the order of the results.
var flowFeatures = []string{FeatureRaw, FeatureFlows, FeatureCounters, FeatureDontTrap, FeatureEgress}

// The next steps if a device lacks a feature.
const (
	fixRaw       = "give the process CAP_NET_RAW in the RDMA device's network namespace"
	fixRawPacket = "use a device with RAW_PACKET queue pairs (mlx5, mlx4, on a port with an Ethernet link)"
	fixFlows     = "use a device whose driver has flow steering (mlx5), or count in XDP"
	fixCounters  = "use a device whose driver has flow counters (mlx5), or count in XDP"
	fixDontTrap  = "use DevX where libmlx5 offers it, or XDP; `steal: true` takes the packets away from the kernel"
	fixEgress    = "count sent packets in XDP (TCX)"
	fixCompCntrs = "needs rdma-core 65 and a device that has them, such as EFA's; completions can be counted from a CQ instead"
)

// Probe tests a device by using it for a few milliseconds, because versions and names are not conclusive. Its
// flows match no traffic: only frames to a random address, with an EtherType reserved for experiments. There
// is one result for each Feature constant, in their order.
func Probe(lib *Library, device string) []probe.Result {
	p := &prober{device: device}
	ctx, err := lib.Open(device)
	if err != nil {
		err = fmt.Errorf("the device cannot be opened: %w", err)
		for _, f := range flowFeatures {
			p.answer(f, err)
		}
		p.answer(FeatureCompCntrs, err)
		return p.results
	}
	p.ctx = ctx
	defer p.close(ctx)

	p.askFlows()
	p.askCompCntrs()
	return p.results
}

// prober tries one device and collects the results.
type prober struct {
	device  string
	ctx     *Context
	results []probe.Result
}

// answer adds a result: err, or yes if it is nil.
func (p *prober) answer(feature string, err error) {
	r := probe.Ask(feature, p.device, err)
	if r.Fix == "" && errors.Is(err, syscall.EPERM) {
		r.Fix = fixRaw
	}
	p.results = append(p.results, r)
}

// unsupported turns err into a conclusive no with a next step.
func (p *prober) unsupported(err error, feature, fix string) error {
	return &probe.UnsupportedError{Feature: feature, Object: p.device, Reason: err.Error(), Fix: fix}
}

// because turns the error of a missing verb into a conclusive no. It returns nil and other errors unchanged:
// the latter are inconclusive.
func (p *prober) because(err error, feature, fix string) error {
	if err == nil || !errors.Is(err, probe.ErrNotSupported) {
		return err
	}
	return p.unsupported(err, feature, fix)
}

// close closes an object of the probe. If this fails, the kernel frees the object when the process ends.
func (p *prober) close(o interface{ Close() error }) { _ = o.Close() }

// askFlows adds the results of flowFeatures.
func (p *prober) askFlows() {
	qp, raw, err := p.queuePair()
	if err != nil {
		err = fmt.Errorf("the probe has no queue pair: %w", err)
		for _, f := range flowFeatures {
			p.answer(f, err)
		}
		return
	}
	defer qp.close(p)

	if errors.Is(raw, syscall.EPERM) { // conclusive here, but not for the other features
		raw = p.unsupported(raw, FeatureRaw, fixRaw)
	}
	p.answer(FeatureRaw, p.because(raw, FeatureRaw, fixRawPacket))

	steering := p.trySteering(qp.QP)
	p.answer(FeatureFlows, p.because(steering, FeatureFlows, fixFlows))

	counting := p.tryCounting(qp.QP, 0)
	p.answer(FeatureCounters, p.because(counting, FeatureCounters, fixCounters))

	for _, f := range []struct {
		feature string
		flag    FlowFlags
		fix     string
	}{
		{FeatureDontTrap, FlowDontTrap, fixDontTrap},
		{FeatureEgress, FlowEgress, fixEgress},
	} {
		err := p.tryCounting(qp.QP, f.flag)
		// The device accepted the flow without the flag, so it refuses the flag. EINVAL is conclusive here.
		if counting == nil && errors.Is(err, syscall.EINVAL) {
			err = p.unsupported(err, f.feature, f.fix)
		}
		p.answer(f.feature, p.because(err, f.feature, f.fix))
	}
}

// askCompCntrs adds the result for completion counters. A yes includes their limits.
func (p *prober) askCompCntrs() {
	caps, err := p.tryCompCntrs()
	p.answer(FeatureCompCntrs, p.because(err, FeatureCompCntrs, fixCompCntrs))
	if err == nil {
		last := &p.results[len(p.results)-1]
		last.Reason = fmt.Sprintf("%d of them, up to %d, of %v", caps.MaxCounters, caps.MaxValue, caps.SupportedQPAttachOps)
	}
}

// probeQP is a queue pair and the objects that it needs.
type probeQP struct {
	*QP
	pd *PD
	cq *CQ
}

// close closes the queue pair and its objects. Some of them may not exist.
func (q *probeQP) close(p *prober) {
	if q.QP != nil {
		p.close(q.QP)
	}
	if q.cq != nil {
		p.close(q.cq)
	}
	p.close(q.pd)
}

// queuePair makes a RAW_PACKET queue pair. If the device refuses, raw is its error, and q is a UD queue pair
// instead: good enough to see the errno of create_flow.
func (p *prober) queuePair() (q *probeQP, raw, err error) {
	q = &probeQP{}
	if q.pd, err = p.ctx.AllocPD(); err != nil {
		return nil, nil, err
	}
	if q.cq, err = p.ctx.CreateCQ(CQOptions{}); err != nil {
		q.close(p)
		return nil, nil, err
	}

	o := QPOptions{
		Type:   QPTRawPacket,
		SendCQ: q.cq,
		RecvCQ: q.cq,
		Cap:    QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
	}
	if q.QP, raw = q.pd.CreateQP(o); raw == nil {
		return q, nil, nil
	}
	o.Type = QPTUD
	if q.QP, err = q.pd.CreateQP(o); err != nil {
		q.close(p)
		return nil, nil, errors.Join(raw, err)
	}
	return q, raw, nil
}

// trySteering makes a flow and closes it.
func (p *prober) trySteering(qp *QP) error {
	f, err := qp.CreateFlow(FlowAttr{
		Priority: maxFlowPriority,
		Port:     1,
		Specs:    []Spec{matchNothing()},
	})
	if err != nil {
		return err
	}
	return f.Close()
}

// tryCounting makes a flow that counts packets and bytes, reads it, and closes it.
func (p *prober) tryCounting(qp *QP, flags FlowFlags) error {
	n, err := p.ctx.CreateCounters()
	if err != nil {
		return err
	}
	defer p.close(n)
	for _, a := range []CounterAttach{{CounterPackets, 0}, {CounterBytes, 1}} {
		if err := n.Attach(a); err != nil {
			return err
		}
	}

	f, err := qp.CreateFlow(FlowAttr{
		Flags:    flags,
		Priority: maxFlowPriority,
		Port:     1,
		Specs:    []Spec{matchNothing(), CountSpec{Counters: n}},
	})
	if err != nil {
		return err
	}
	defer p.close(f)

	var values [2]uint64
	return n.Read(values[:], 0)
}

// tryCompCntrs makes a completion counter, reads it, and closes it.
func (p *prober) tryCompCntrs() (CompCntrCaps, error) {
	caps, err := p.ctx.QueryCompCntrCaps()
	if err != nil {
		return caps, err
	}
	k, err := p.ctx.CreateCompCntr(CompCntrOptions{})
	if err != nil {
		return caps, err
	}
	defer p.close(k)
	_, err = k.Read()
	return caps, err
}

// matchNothing returns a spec without any real traffic: frames of an EtherType for experiments (IEEE 802,
// local experimental 1) to a random, locally administered unicast address.
func matchNothing() Spec {
	s := EthSpec{Val: EthFilter{EtherType: 0x88b5}, Mask: EthFilter{EtherType: 0xffff}}
	_, _ = rand.Read(s.Val.DstMAC[:]) // never fails
	s.Val.DstMAC[0] = s.Val.DstMAC[0]&0xfc | 2
	for i := range s.Mask.DstMAC {
		s.Mask.DstMAC[i] = 0xff
	}
	return s
}
