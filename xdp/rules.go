package xdp

import (
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
	if r.Counter >= rs.pool.n || !rs.meta.counter(r.Counter).used() {
		return fmt.Errorf("%w: counter %d is not allocated", ErrInvalid, r.Counter)
	}
	return nil
}

// Add adds all of rules or none. When it returns, every packet on every hook is
// decided with them; none was missed or counted twice by other rules meanwhile.
// Rules of masks that are in use cost some stores; a new mask, or a layer that no
// rule has looked at, costs a load of the programs, once for all of rules.
func (rs *RuleSet) Add(rules ...Rule) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if err := rs.usable(); err != nil {
		return err
	}
	for i := range rules {
		if err := rs.check(&rules[i]); err != nil {
			return fmt.Errorf("adding rule %d of %d: %w", i+1, len(rules), err)
		}
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
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if err := rs.usable(); err != nil {
		return err
	}
	return rs.class.remove(rules)
}

// Rules lists the rules, best first.
func (rs *RuleSet) Rules() []Rule {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.usable() != nil {
		return nil
	}
	return rs.class.rules()
}
