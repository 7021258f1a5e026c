package xdp

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
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
// of both is decided all the while, and dropped all the while where both drop.
func (rs *RuleSet) Exchange(old, fresh []Rule) error {
	if err := rs.enter(); err != nil {
		return err
	}
	defer rs.mu.Unlock()
	for i := range fresh {
		if err := rs.check(&fresh[i]); err != nil {
			return fmt.Errorf("adding rule %d of %d: %w", i+1, len(fresh), err)
		}
	}
	defer rs.class.done()
	moves, gone, added, err := rs.class.pair(old, fresh)
	if err != nil {
		return err
	}
	// Rules that win over more rules than before move before the added rules come. Rules that win over fewer
	// rules than before move afterwards.
	var early, late []move
	for _, m := range moves {
		if m.raises() {
			late = append(late, m)
		} else {
			early = append(early, m)
		}
	}
	slices.SortStableFunc(added, func(a, b Rule) int { return cmp.Compare(a.rank(), b.rank()) })
	rs.class.move(early)
	if err := rs.add(added); err != nil {
		for i, m := range early {
			early[i] = move{m.to, m.from}
		}
		rs.class.move(early)
		return err
	}
	rs.class.move(late)
	if len(gone) == 0 {
		return nil
	}
	return rs.class.remove(gone)
}

func (rs *RuleSet) add(rules []Rule) error {
	if len(rules) == 0 {
		return nil
	}
	again, err := rs.class.prepare(rules)
	if errors.Is(err, ErrFull) && rs.reload() == nil {
		// A load drops the masks of rules that are gone.
		again, err = rs.class.prepare(rules)
	}
	if err != nil {
		return err
	}
	if again {
		if err := rs.reload(); err != nil {
			rs.class.abandon(rules)
			return err
		}
	}
	return nil
}

// Remove removes all of rules or none; Counter and Drop are not compared.
func (rs *RuleSet) Remove(rules ...Rule) error {
	if err := rs.enter(); err != nil {
		return err
	}
	defer rs.mu.Unlock()
	return rs.class.remove(rules)
}

// Rules lists the rules, best first.
func (rs *RuleSet) Rules() []Rule {
	if rs.enter() != nil {
		return nil
	}
	defer rs.mu.Unlock()
	return rs.class.rules()
}
