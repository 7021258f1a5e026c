package rdma

import (
	"context"
	"errors"
	"io"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/ibv"
	"github.com/flowtally/flowtally/probe"
)

// verbsNIC counts with ibv_create_flow and a COUNT spec. A verbs flow needs a queue pair. We never post a receive there, so the
// copies that DONT_TRAP rules send to it are dropped.
type verbsNIC struct {
	ctx     *ibv.Context
	port    uint8
	pd      *ibv.PD
	cq      *ibv.CQ
	qp      *ibv.QP
	refused map[dataplane.Mode]error // why the device cannot count in a mode, or nil
	anyMode dataplane.Mode           // one in which it can
}

// openVerbsNIC opens the device for verbs and tries the modes out. On error, ctx is still the caller's.
func openVerbsNIC(ctx *ibv.Context, port uint8, steal bool) (_ *verbsNIC, err error) {
	n := &verbsNIC{ctx: ctx, port: port}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.closeObjects())
		}
	}()

	if err := n.makeQueuePair(); err != nil {
		return nil, err
	}
	if err := n.tryModes(steal); err != nil {
		return nil, err
	}
	return n, nil
}

// makeQueuePair makes the queue pair of the flows. Flows need it in state RTR.
func (n *verbsNIC) makeQueuePair() (err error) {
	if n.pd, err = n.ctx.AllocPD(); err != nil {
		return err
	}
	if n.cq, err = n.ctx.CreateCQ(ibv.CQOptions{CQE: 1}); err != nil {
		return err
	}
	n.qp, err = n.pd.CreateQP(ibv.QPOptions{
		Type:   ibv.QPTRawPacket,
		SendCQ: n.cq,
		RecvCQ: n.cq,
		Cap:    ibv.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	if err != nil {
		return err
	}

	initial := ibv.QPAttr{State: ibv.QPSInit, PortNum: n.port}
	if err := n.qp.Modify(initial, ibv.QPAttrState|ibv.QPAttrPort); err != nil {
		return err
	}
	return n.qp.Modify(ibv.QPAttr{State: ibv.QPSRTR}, ibv.QPAttrState)
}

// tryModes finds out in which modes the device can count. It tries stealing only if the configuration allows it. It returns an
// error if the device has no mode.
func (n *verbsNIC) tryModes(steal bool) error {
	n.refused = map[dataplane.Mode]error{
		dataplane.ModeDontTrap: n.try(dataplane.ModeDontTrap),
		dataplane.ModeEgress:   n.try(dataplane.ModeEgress),
		dataplane.ModeDrop:     n.try(dataplane.ModeDrop),
		dataplane.ModeSteal: &probe.UnsupportedError{
			Feature: "counting received packets",
			Object:  n.ctx.Device(),
			Reason:  "the device counts only by taking the packets away from the kernel",
			Fix:     "leave the flow to XDP, or set rdma.steal to true if the kernel does not need the packets",
		},
	}
	if steal {
		n.refused[dataplane.ModeSteal] = n.try(dataplane.ModeSteal)
	}

	for _, m := range []dataplane.Mode{dataplane.ModeDontTrap, dataplane.ModeEgress, dataplane.ModeDrop, dataplane.ModeSteal} {
		if n.refused[m] == nil {
			n.anyMode = m
			return nil
		}
	}
	return n.refused[dataplane.ModeDrop] // it asks least of a device, so its error says most
}

// try adds a rule without packets in one mode, with a counter, and removes both.
func (n *verbsNIC) try(m dataplane.Mode) (err error) {
	b, err := n.newBulk()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	r, err := n.addRule(rule{match: noPacket(), mode: m, drop: m == dataplane.ModeDrop, level: numLevels - 1}, b, 0)
	if err != nil {
		return err
	}
	return r.Close()
}

func (n *verbsNIC) steeringAPI() steeringAPI { return withVerbs }

// mode implements nic. It prefers dont-trap to steal, which keeps packets from the kernel.
func (n *verbsNIC) mode(d flow.Direction, a flow.Action) (dataplane.Mode, error) {
	switch {
	case d == flow.Egress && a == flow.Drop:
		return "", refusal("packets to drop on egress", "verbs have no rule that drops sent packets", useXDP)
	case d == flow.Egress:
		return dataplane.ModeEgress, n.refused[dataplane.ModeEgress]
	case a == flow.Drop:
		return dataplane.ModeDrop, n.refused[dataplane.ModeDrop]
	}

	noDontTrap := n.refused[dataplane.ModeDontTrap]
	if noDontTrap == nil {
		return dataplane.ModeDontTrap, nil
	}
	if noSteal := n.refused[dataplane.ModeSteal]; noSteal != nil {
		return "", errors.Join(noSteal, noDontTrap)
	}
	return dataplane.ModeSteal, nil
}

// verbsBulk is one counters object: packets at index 0, bytes at index 1.
type verbsBulk struct {
	nic *verbsNIC
	c   *ibv.Counters
	raw [2]uint64
}

// newBulk implements nic. It must attach before the first flow: later the device returns EBUSY.
func (n *verbsNIC) newBulk() (bulk, error) {
	c, err := n.ctx.CreateCounters()
	if err != nil {
		return nil, err
	}
	for _, a := range []ibv.CounterAttach{{Counter: ibv.CounterPackets, Index: 0}, {Counter: ibv.CounterBytes, Index: 1}} {
		if err := c.Attach(a); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return &verbsBulk{nic: n, c: c}, nil
}

func (b *verbsBulk) slots() int         { return 1 }
func (b *verbsBulk) startsAtZero() bool { return true }
func (b *verbsBulk) Close() error       { return b.c.Close() }

func (b *verbsBulk) query(dst []backend.Pair) error {
	if err := b.c.Read(b.raw[:], 0); err != nil {
		return err
	}
	dst[0] = backend.Pair{Packets: b.raw[0], Bytes: b.raw[1]}
	return nil
}

// queryFinal implements bulk. Counters without a flow keep their values, but reading them fails with EINVAL. So we add a flow
// without packets during the read.
func (b *verbsBulk) queryFinal(dst []backend.Pair) error {
	m := b.nic.anyMode
	r, err := b.nic.addRule(rule{match: noPacket(), mode: m, drop: m == dataplane.ModeDrop, level: numLevels - 1}, b, 0)
	if err != nil {
		return err
	}
	return errors.Join(b.query(dst), r.Close())
}

// addRule implements nic. It uses NORMAL flows because no other type counts; see package ibv.
func (n *verbsNIC) addRule(r rule, b bulk, _ int) (io.Closer, error) {
	a := ibv.FlowAttr{Type: ibv.FlowAttrNormal, Priority: uint16(r.level), Port: n.port, Specs: verbsSpecs(r.match)}
	switch r.mode {
	case dataplane.ModeDontTrap:
		a.Flags = ibv.FlowDontTrap
	case dataplane.ModeEgress:
		a.Flags = ibv.FlowEgress
	}
	if r.drop {
		a.Specs = append(a.Specs, ibv.DropSpec{})
	}
	a.Specs = append(a.Specs, ibv.CountSpec{Counters: b.(*verbsBulk).c})
	f, err := n.qp.CreateFlow(a)
	if err != nil {
		return nil, err // not f: an io.Closer with a nil *ibv.Flow is not nil
	}
	return f, nil
}

func (n *verbsNIC) nextEvent(ctx context.Context) (nicEvent, error) {
	return nextEvent(ctx, n.ctx, n.port)
}

// Close implements nic: children before parents.
func (n *verbsNIC) Close() error { return errors.Join(n.closeObjects(), n.ctx.Close()) }

func (n *verbsNIC) closeObjects() error {
	var errs []error
	if n.qp != nil {
		errs = append(errs, n.qp.Close())
	}
	if n.cq != nil {
		errs = append(errs, n.cq.Close())
	}
	if n.pd != nil {
		errs = append(errs, n.pd.Close())
	}
	return errors.Join(errs...)
}
