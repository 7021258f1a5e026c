package xdp

import (
	"context"
	"errors"
	"fmt"
)

// checkRule returns an error if a rule is not as Rule demands.
func (dp *Datapath) checkRule(r *Rule) error {
	k, m := r.Key.words(), r.Mask.words()
	for w := range k {
		if k[w]&^m[w] != 0 {
			return fmt.Errorf("%w: its key has bits outside its mask", ErrInvalid)
		}
	}
	if err := checkPorts(&r.Key.Out, &r.Mask.Out, r.Ports[0]); err != nil {
		return err
	}
	if err := checkPorts(&r.Key.In, &r.Mask.In, r.Ports[1]); err != nil {
		return err
	}
	if err := dp.sets.checkRule(r); err != nil {
		return err
	}
	if r.Counter >= dp.pool.n || !dp.meta.counter(r.Counter).used() {
		return fmt.Errorf("%w: counter %d is not allocated", ErrInvalid, r.Counter)
	}
	return nil
}

// checkPorts checks the ranges of one level of headers.
func checkPorts(key, mask *Headers, p Ports) error {
	for i, r := range []Range{p.Src, p.Dst} {
		if r == (Range{}) {
			continue
		}
		if r.First > r.Last {
			return fmt.Errorf("%w: its range of ports %d to %d is empty", ErrInvalid, r.First, r.Last)
		}
		if key.Flags&mask.Flags&FlagL4 == 0 || mask.L4[2*i]|mask.L4[2*i+1] != 0 {
			return fmt.Errorf("%w: a range of ports takes FlagL4 in key and mask, and no mask of the port", ErrInvalid)
		}
	}
	return nil
}

// Add adds all of rules or none. When it returns, the rules apply to every packet on every hook. Other rules miss no packet during
// the change, and count none twice.
//
// Adding a rule costs a few stores. New programs are loaded if the rules need a layer or an IP version that the attached programs do
// not parse, or if another mask is to be hashed. One load serves all of rules.
func (dp *Datapath) Add(rules ...Rule) error { return dp.Exchange(nil, rules) }

// Exchange replaces the rules old by the rules fresh, all or none. It identifies the rules of old by key, mask, ports, Priority and
// Order.
//
// A rule of fresh may have the key, mask and counter of a rule of old. Then Exchange changes that rule in place, which takes single
// stores and no memory. It adds the remaining rules of fresh before it removes those of old. So a packet that matches rules of
// both always matches one of them, and if both drop, it is always dropped.
//
// Up to 512 rules are added in an order with a guarantee: each packet counts for the rule that won before the change, or for the
// rule that wins after it. The same holds for removing up to 512 rules. In a larger change, the wrong one of two new rules may
// count some packets until Exchange returns.
//
// If the rules of fresh cannot be added, Exchange restores the old rules. The error is an ErrUndone if some packets may have met rules
// of fresh before that.
func (dp *Datapath) Exchange(old, fresh []Rule) error {
	return dp.ExchangeContext(context.Background(), old, fresh)
}

// ExchangeContext is Exchange with a context. If ctx ends while rules are being added, ExchangeContext restores the old rules and
// returns the error of ctx. Once it has begun to remove rules of old, it ignores ctx.
func (dp *Datapath) ExchangeContext(ctx context.Context, old, fresh []Rule) error {
	if err := dp.enterChanges(); err != nil {
		return err
	}
	defer dp.leaveChanges()

	for i := range fresh {
		if err := dp.checkRule(&fresh[i]); err != nil {
			return fmt.Errorf("adding rule %d of %d: %w", i+1, len(fresh), err)
		}
	}
	come, leave, err := dp.tables.pair(old, fresh)
	defer dp.tables.unpair()
	if err != nil {
		return err
	}
	if err := dp.numberPrograms(fresh); err != nil {
		return err
	}

	err = dp.tables.come(ctx, come)
	// Reloading the programs drops masks no rule uses, which may make room.
	if errors.Is(err, ErrFull) && dp.reload() == nil {
		err = dp.tables.come(ctx, come)
	}
	if err != nil {
		return err
	}
	return dp.tables.leave(leave)
}

// NoteChange records in the pins that the caller begins or ends a change of several calls. If the process dies in between, the next
// one learns it from Unfinished, until it calls NoteChange(false).
func (dp *Datapath) NoteChange(underWay bool) {
	if dp.enter() != nil {
		return
	}
	defer dp.mu.Unlock()
	dp.meta.setUnderWay(setChanging, underWay)
	if !underWay {
		dp.tables.dropped = nil
	}
}

// Unfinished reports whether the earlier process died within a change recorded by NoteChange. It returns the rules being added at
// that time. Open has dropped them, but they may have counted packets before.
func (dp *Datapath) Unfinished() (changing bool, added []Rule) {
	if dp.enter() != nil {
		return false, nil
	}
	defer dp.mu.Unlock()
	return dp.meta.underWay(setChanging), dp.tables.dropped
}

// Remove removes all of rules or none. It ignores their Counter and Drop.
func (dp *Datapath) Remove(rules ...Rule) error { return dp.Exchange(rules, nil) }

// Rules lists the rules, best first.
func (dp *Datapath) Rules() []Rule {
	if dp.enterChanges() != nil {
		return nil
	}
	defer dp.leaveChanges()
	return dp.tables.rules()
}
