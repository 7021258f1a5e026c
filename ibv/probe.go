package ibv

import (
	"crypto/rand"
	"errors"
	"fmt"
	"syscall"

	"github.com/flowtally/flowtally/probe"
)

// The questions that Probe asks a device.
const (
	FeatureRaw       = "raw privilege"
	FeatureFlows     = "flows"
	FeatureCounters  = "flow counters"
	FeatureDontTrap  = "count without stealing (DONT_TRAP)"
	FeatureEgress    = "count sent packets (EGRESS)"
	FeatureCompCntrs = "completion counters"
)

const fixRaw = "give the process CAP_NET_RAW in the RDMA device's network namespace"

// Probe tests a device by using it, for a few milliseconds: versions and names are not conclusive.
// The flows that it makes match frames to a random address of an EtherType that is reserved for
// experiments, so no traffic is touched. The results are in the order of the Feature constants, one
// for each.
func Probe(lib *Library, device string) []probe.Result {
	p := &prober{device: device}
	ctx, err := lib.Open(device)
	if err != nil {
		for _, f := range []string{FeatureRaw, FeatureFlows, FeatureCounters, FeatureDontTrap, FeatureEgress, FeatureCompCntrs} {
			p.answer(f, fmt.Errorf("the device cannot be opened: %w", err))
		}
		return p.results
	}
	p.ctx = ctx
	defer p.close(ctx)
	p.flows()
	caps, err := p.compCntrs()
	p.answer(FeatureCompCntrs, because(err, FeatureCompCntrs, device, "needs rdma-core 65 and a device that has them, such as EFA's; completions can be counted from a CQ instead"))
	if err == nil {
		p.results[len(p.results)-1].Reason = fmt.Sprintf("%d of them, up to %d, of %v", caps.MaxCounters, caps.MaxValue, caps.SupportedQPAttachOps)
	}
	return p.results
}

type prober struct {
	device  string
	ctx     *Context
	results []probe.Result
}

func (p *prober) answer(feature string, err error) {
	p.results = append(p.results, probe.Ask(feature, p.device, err))
	if r := &p.results[len(p.results)-1]; r.Fix == "" && errors.Is(err, syscall.EPERM) {
		r.Fix = fixRaw
	}
}

// close frees the objects of a probe. An object that cannot be destroyed stays until the process
// ends.
func (p *prober) close(o interface{ Close() error }) { _ = o.Close() }

// because turns the error of an absent verb into a conclusive result.
func because(err error, feature, device, fix string) error {
	if err == nil || !errors.Is(err, probe.ErrNotSupported) {
		return err
	}
	return &probe.UnsupportedError{Feature: feature, Object: device, Reason: err.Error(), Fix: fix}
}

func (p *prober) flows() {
	qp, raw, err := p.queuePair()
	if err != nil {
		for _, f := range []string{FeatureRaw, FeatureFlows, FeatureCounters, FeatureDontTrap, FeatureEgress} {
			p.answer(f, fmt.Errorf("the probe has no queue pair: %w", err))
		}
		return
	}
	defer qp.close(p)
	if errors.Is(raw, syscall.EPERM) { // conclusive for this question alone
		raw = &probe.UnsupportedError{Feature: FeatureRaw, Object: p.device, Reason: raw.Error(), Fix: fixRaw}
	}
	p.answer(FeatureRaw, because(raw, FeatureRaw, p.device, "use a device with RAW_PACKET queue pairs (mlx5, mlx4, on a port with an Ethernet link)"))

	flows := p.steering(qp.QP)
	p.answer(FeatureFlows, because(flows, FeatureFlows, p.device, "use a device whose driver has flow steering (mlx5), or count in XDP"))
	counting := p.counting(qp.QP, 0)
	p.answer(FeatureCounters, because(counting, FeatureCounters, p.device, "use a device whose driver has flow counters (mlx5), or count in XDP"))
	for _, f := range []struct {
		feature string
		flag    FlowFlags
		fix     string
	}{
		{FeatureDontTrap, FlowDontTrap, "use DevX where libmlx5 offers it, or XDP; `steal: true` takes the packets away from the kernel"},
		{FeatureEgress, FlowEgress, "count sent packets in XDP (TCX)"},
	} {
		err := p.counting(qp.QP, f.flag)
		// The device took the same flow without the flag, so it refuses the flag, whichever errno
		// the driver returns.
		if counting == nil && err != nil && errors.Is(err, syscall.EINVAL) {
			err = &probe.UnsupportedError{Feature: f.feature, Object: p.device, Reason: err.Error(), Fix: f.fix}
		}
		p.answer(f.feature, because(err, f.feature, p.device, f.fix))
	}
}

// probeQP is a queue pair with the objects from which it was made.
type probeQP struct {
	*QP
	pd *PD
	cq *CQ
}

func (q *probeQP) close(p *prober) {
	if q.QP != nil {
		p.close(q.QP)
	}
	if q.cq != nil {
		p.close(q.cq)
	}
	p.close(q.pd)
}

// compCntrs makes a completion counter, reads it, and closes it.
func (p *prober) compCntrs() (CompCntrCaps, error) {
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

// queuePair makes a RAW_PACKET queue pair. If the device refuses that, raw is the error and q is a
// UD queue pair, which is enough to see the errno of create_flow.
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
		Type: QPTRawPacket, SendCQ: q.cq, RecvCQ: q.cq,
		Cap: QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
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

// steering makes a flow and closes it.
func (p *prober) steering(qp *QP) error {
	f, err := qp.CreateFlow(FlowAttr{Priority: maxFlowPriority, Port: 1, Specs: []Spec{unused()}})
	if err != nil {
		return err
	}
	return f.Close()
}

// unused matches no packet that any host sends.
func unused() Spec {
	s := EthSpec{Val: EthFilter{EtherType: 0x88b5}, Mask: EthFilter{EtherType: 0xffff}}
	_, _ = rand.Read(s.Val.DstMAC[:]) // never fails
	s.Val.DstMAC[0] = s.Val.DstMAC[0]&0xfc | 2
	for i := range s.Mask.DstMAC {
		s.Mask.DstMAC[i] = 0xff
	}
	return s
}

// counting makes a flow that counts packets and bytes, reads it, and closes it.
func (p *prober) counting(qp *QP, flags FlowFlags) (err error) {
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
	f, err := qp.CreateFlow(FlowAttr{Flags: flags, Priority: maxFlowPriority, Port: 1, Specs: []Spec{unused(), CountSpec{Counters: n}}})
	if err != nil {
		return err
	}
	defer p.close(f)
	var values [2]uint64
	return n.Read(values[:], 0)
}
