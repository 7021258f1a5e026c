package xdp

import (
	"context"
	"errors"
	"fmt"
)

// checkRule returns an error if a caller's rule breaks what Rule demands.
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

// Add adds all of rules or none. When it returns, they decide every packet on every hook. Meanwhile other rules have missed no
// packet and counted none twice.
//
// A rule costs a few stores. If programs do not read a layer or an IP version that rules need, or if another mask is to be
// hashed, programs are loaded, once for all of rules.
func (dp *Datapath) Add(rules ...Rule) error { return dp.Exchange(nil, rules) }

// Exchange puts the rules fresh in the places of old, all or none. It finds the rules of old by key, mask, ports and rank.
//
// A rule of fresh with the key, mask and counter of one of old is that rule with another rank or action: it takes single
// stores and no more room. The other rules of fresh come before the rest of old goes. So a packet that matches rules of both
// is decided all the while, and dropped all the while if both drop.
//
// While up to 512 rules come, a packet counts for the rule that won before them, or for the one that wins with all of them.
// While up to 512 rules go, it counts for the one that wins before, or the one that wins after. In a larger change a worse
// one of two new rules may count a packet until Exchange returns; but no new rule decides a packet before the trees have
// taken theirs.
//
// If the error satisfies ErrUndone, rules that are gone again have decided some packets.
func (dp *Datapath) Exchange(old, fresh []Rule) error {
	return dp.ExchangeContext(context.Background(), old, fresh)
}

// ExchangeContext is Exchange. If ctx ends while rules come, the rules are as before, and the error is that of ctx. Once the
// first rule of old goes, all of them go.
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
	// Reloading the programs drops masks that no rule uses, so there may be room now.
	if errors.Is(err, ErrFull) && dp.reload() == nil {
		err = dp.tables.come(ctx, come)
	}
	if err != nil {
		return err
	}
	return dp.tables.leave(leave)
}

// NoteChange notes in the pins that the caller begins, or ends, a change of its rules by several calls. If the process dies in
// between, Unfinished tells the next one, until that one notes an end.
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

// Unfinished reports whether the earlier process died within a noted change, and returns the rules that it was adding. Programs
// may have counted packets by them until Open dropped them.
func (dp *Datapath) Unfinished() (changing bool, added []Rule) {
	if dp.enter() != nil {
		return false, nil
	}
	defer dp.mu.Unlock()
	return dp.meta.underWay(setChanging), dp.tables.dropped
}

// Remove removes all of rules or none. It does not compare Counter and Drop.
func (dp *Datapath) Remove(rules ...Rule) error { return dp.Exchange(rules, nil) }

// Rules lists the rules, best first.
func (dp *Datapath) Rules() []Rule {
	if dp.enterChanges() != nil {
		return nil
	}
	defer dp.leaveChanges()
	return dp.tables.rules()
}
