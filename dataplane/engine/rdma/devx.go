package rdma

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/ibv"
)

// bulkCounters is the smallest bulk of mlx5: the number of counters read by one command.
const bulkCounters = 128

// devxNIC counts with mlx5dv_create_flow. Its rules end in DEFAULT_MISS, so packets go on to the kernel and no queue pair is
// needed. The first match ends the search, and one command reads a whole bulk.
type devxNIC struct {
	ctx  *ibv.Context
	port uint8
	dx   *ibv.DevX
	bulk int // slots of a bulk

	mu       sync.Mutex
	matchers map[ibv.MatcherAttr]*devxMatcher
}

// devxMatcher is a mask and a priority, shared by rules. The last rule destroys it.
type devxMatcher struct {
	m     *ibv.Matcher
	rules int
}

// openDevXNIC opens the device for DevX and tries a rule out. On error, ctx is still the caller's.
func openDevXNIC(ctx *ibv.Context, port uint8) (_ *devxNIC, err error) {
	dx, err := ctx.DevX()
	if err != nil {
		return nil, err
	}

	n := &devxNIC{
		ctx:      ctx,
		port:     port,
		dx:       dx,
		bulk:     bulkCounters,
		matchers: make(map[ibv.MatcherAttr]*devxMatcher),
	}
	if !dx.HasOffsets() {
		n.bulk = 1
	}
	err = n.try()
	if err != nil && n.bulk > 1 { // a device may have counters and no bulks
		n.bulk = 1
		err = n.try()
	}
	if err != nil {
		return nil, errors.Join(err, dx.Close())
	}
	return n, nil
}

// tryDevX returns why the device cannot count with DevX, or nil.
func tryDevX(ctx *ibv.Context) error {
	n, err := openDevXNIC(ctx, 1)
	if err != nil {
		return err
	}
	return n.dx.Close()
}

// try adds a rule without packets for the last slot of a bulk, reads the bulk, and removes both.
func (n *devxNIC) try() (err error) {
	b, err := n.newBulk()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	r, err := n.addRule(rule{match: noPacket(), mode: dataplane.ModeDevX, level: numLevels - 1}, b, b.slots()-1)
	if err != nil {
		return err
	}
	return errors.Join(b.query(make([]backend.Pair, b.slots())), r.Close())
}

func (n *devxNIC) steeringAPI() steeringAPI {
	if n.dx.MatchesICMP() {
		return withDevX | parsesICMP
	}
	return withDevX
}

// mode implements nic. One mode serves both directions and both actions.
func (n *devxNIC) mode(flow.Direction, flow.Action) (dataplane.Mode, error) {
	return dataplane.ModeDevX, nil
}

// devxBulk is a bulk of flow counters.
type devxBulk struct {
	c   *ibv.FlowCounters
	raw []ibv.FlowCount
}

// newBulk implements nic.
func (n *devxNIC) newBulk() (bulk, error) {
	c, err := n.dx.AllocFlowCounters(n.bulk)
	if err != nil {
		return nil, err
	}
	return &devxBulk{c: c, raw: make([]ibv.FlowCount, n.bulk)}, nil
}

func (b *devxBulk) slots() int         { return len(b.raw) }
func (b *devxBulk) startsAtZero() bool { return false } // a slot still has the count of its last flow
func (b *devxBulk) Close() error       { return b.c.Close() }

func (b *devxBulk) query(dst []backend.Pair) error {
	if err := b.c.Query(b.raw); err != nil {
		return err
	}
	for i, c := range b.raw {
		dst[i] = backend.Pair{Packets: c.Packets, Bytes: c.Octets}
	}
	return nil
}

func (b *devxBulk) queryFinal(dst []backend.Pair) error { return b.query(dst) }

// addRule implements nic.
func (n *devxNIC) addRule(r rule, b bulk, slot int) (io.Closer, error) {
	val, mask := devxParam(r.match)
	egress := r.direction == flow.Egress
	attr := ibv.MatcherAttr{Mask: mask, Priority: uint16(r.level), Egress: egress}
	m, err := n.acquireMatcher(attr)
	if err != nil {
		return nil, err
	}
	f, err := m.CreateFlow(val, ibv.FlowActions{
		Counters:    b.(*devxBulk).c,
		Offset:      uint32(slot),
		DefaultMiss: !egress && !r.drop,
		Drop:        r.drop,
	})
	if err != nil {
		return nil, errors.Join(err, n.releaseMatcher(attr))
	}
	return &devxRule{nic: n, flow: f, attr: attr}, nil
}

// acquireMatcher returns the matcher of a mask and a priority. Each call needs a releaseMatcher.
func (n *devxNIC) acquireMatcher(attr ibv.MatcherAttr) (*ibv.Matcher, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.matchers[attr]
	if m == nil {
		made, err := n.dx.CreateMatcher(attr)
		if err != nil {
			return nil, err
		}
		m = &devxMatcher{m: made}
		n.matchers[attr] = m
	}
	m.rules++
	return m.m, nil
}

// releaseMatcher ends one use of a matcher. The last one destroys it.
func (n *devxNIC) releaseMatcher(attr ibv.MatcherAttr) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.matchers[attr]
	if m.rules--; m.rules > 0 {
		return nil
	}
	delete(n.matchers, attr)
	return m.m.Close()
}

// devxRule is a rule and its use of a matcher. Close is not safe for concurrent use.
type devxRule struct {
	nic    *devxNIC
	flow   *ibv.DevXFlow
	attr   ibv.MatcherAttr
	closed bool
}

// Close can be called again if the device was busy. After any other error package ibv treats the flow as closed, so we must
// release the matcher.
func (r *devxRule) Close() error {
	if r.closed {
		return nil
	}
	err := r.flow.Close()
	if errors.Is(err, ibv.ErrBusy) {
		return err
	}
	r.closed = true
	return errors.Join(err, r.nic.releaseMatcher(r.attr))
}

func (n *devxNIC) nextEvent(ctx context.Context) (nicEvent, error) {
	return nextEvent(ctx, n.ctx, n.port)
}

// Close implements nic.
func (n *devxNIC) Close() error { return errors.Join(n.dx.Close(), n.ctx.Close()) }
