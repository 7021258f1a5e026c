package tree

import "fmt"

// Exchange removes the rules of these slots and adds others, all or nothing. A key that an old and a new rule match
// always finds one of the two.
func (s *Set) Exchange(remove []uint64, add []Rule) error {
	rules := make(map[Node]*rule, len(s.rules)+len(add))
	for slot, r := range s.rules {
		rules[slot] = r
	}
	for _, slot := range remove {
		if rules[Node(slot)] == nil {
			return fmt.Errorf("tree: no rule has slot %#x", slot)
		}
		delete(rules, Node(slot))
	}
	for i := range add {
		r, err := s.newRule(&add[i])
		if err != nil {
			return err
		}
		if rules[r.slot] != nil {
			return fmt.Errorf("tree: two rules have slot %#x", add[i].Slot)
		}
		rules[r.slot] = r
	}
	list := make([]*rule, 0, len(rules))
	for _, r := range rules {
		list = append(list, r)
	}
	if err := s.replace(list); err != nil {
		return err
	}
	s.rules = rules
	return nil
}
