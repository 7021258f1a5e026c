package xdp

import (
	"context"
	"errors"
	"fmt"
)

func (rs *RuleSet) check(r *Rule) error {
	k, m := r.Key.words(), r.Mask.words()
	for w := range k {
		if k[w]&^m[w] != 0 {
			return fmt.Errorf("%w: its key has bits outside its mask", ErrInvalid)
		}
	}
	for level, h := range []struct{ key, mask *Headers }{{&r.Key.Out, &r.Mask.Out}, {&r.Key.In, &r.Mask.In}} {
		for i, p := range []Range{r.Ports[level].Src, r.Ports[level].Dst} {
			if p == (Range{}) {
				continue
			}
			if p.First > p.Last {
				return fmt.Errorf("%w: its range of ports %d to %d is empty", ErrInvalid, p.First, p.Last)
			}
			if h.key.Flags&h.mask.Flags&FlagL4 == 0 || h.mask.L4[2*i]|h.mask.L4[2*i+1] != 0 {
				return fmt.Errorf("%w: a range of ports takes FlagL4 in key and mask, and no mask of the port", ErrInvalid)
			}
		}
	}
	if r.Counter >= rs.pool.n || !rs.meta.counter(r.Counter).used() {
		return fmt.Errorf("%w: counter %d is not allocated", ErrInvalid, r.Counter)
	}
	return nil
}

// Add adds all of rules or none. When it returns, every packet on every hook is
// decided with them; none was missed or counted twice by other rules meanwhile.
// Rules cost some stores. A layer or an IP version that no rule has looked at, or another
// arrangement of the tables, costs a load of the programs, once for all of rules.
func (rs *RuleSet) Add(rules ...Rule) error { return rs.Exchange(nil, rules) }

// Exchange puts the rules fresh in the place of old, all or none; Counter and Drop of
// old are not compared. A rule of fresh with the key, mask and counter of one of old
// is that one with another rank or action, by single stores and without more room. The
// others of fresh come before the rest of old goes, so every packet that matches rules
// of both is decided all the while, and dropped all the while where both drop. While up to
// 512 rules come, a packet counts for the rule that won before or for the one that wins
// with all of them; and the same while others go. Of more rules that come, no packet is
// decided by one before the trees have theirs. An error that satisfies ErrUndone says
// that some packets were decided by rules that are gone again.
func (rs *RuleSet) Exchange(old, fresh []Rule) error {
	return rs.ExchangeContext(context.Background(), old, fresh)
}

// ExchangeContext is Exchange until ctx ends: then the rules are as before, and the error is that of ctx. Old rules that
// have begun to go, go to the last one.
func (rs *RuleSet) ExchangeContext(ctx context.Context, old, fresh []Rule) error {
	if err := rs.enterChanges(); err != nil {
		return err
	}
	defer rs.leaveChanges()
	for i := range fresh {
		if err := rs.check(&fresh[i]); err != nil {
			return fmt.Errorf("adding rule %d of %d: %w", i+1, len(fresh), err)
		}
	}
	defer rs.tables.done()
	come, leave, err := rs.tables.pair(old, fresh)
	if err != nil {
		return err
	}
	if err := rs.numberPrograms(fresh); err != nil {
		return err
	}
	err = rs.tables.come(ctx, come)
	if errors.Is(err, ErrFull) && rs.reload() == nil {
		// Reloading the programs drops the masks that no rule uses.
		err = rs.tables.come(ctx, come)
	}
	if err != nil {
		return err
	}
	return rs.tables.leave(leave)
}

// NoteChange notes beside the pins whether the caller is changing its rules by several calls. If the process dies in
// between, Unfinished tells the next one, until that one notes an end.
func (rs *RuleSet) NoteChange(underWay bool) {
	if rs.enter() != nil {
		return
	}
	defer rs.mu.Unlock()
	rs.meta.setUnderWay(setChanging, underWay)
	if !underWay {
		rs.tables.dropped = nil
	}
}

// Unfinished reports whether the last process died within a change that it had noted, and returns the rules that it was
// adding. Programs may have counted packets by them until Open dropped them.
func (rs *RuleSet) Unfinished() (changing bool, added []Rule) {
	if rs.enter() != nil {
		return false, nil
	}
	defer rs.mu.Unlock()
	return rs.meta.underWay(setChanging), rs.tables.dropped
}

// Remove removes all of rules or none; Counter and Drop are not compared.
func (rs *RuleSet) Remove(rules ...Rule) error { return rs.Exchange(rules, nil) }

// Rules lists the rules, best first.
func (rs *RuleSet) Rules() []Rule {
	if rs.enterChanges() != nil {
		return nil
	}
	defer rs.leaveChanges()
	return rs.tables.rules()
}
