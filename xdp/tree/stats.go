package tree

// Trees returns the number of trees of each class.
func (s *Set) Trees() (n [Classes]int) {
	for c := range n {
		switch root := s.mem.load(c); {
		case root.Kind() == KindFork:
			n[c] = root.Count()
		case root != 0:
			n[c] = 1
		}
	}
	return n
}

// Built returns how often all trees were built.
func (s *Set) Built() int { return s.built }

// Words returns the size of the trees in words.
func (s *Set) Words() int { return len(s.mem.words) - headerWords - s.mem.free - s.mem.waiting }

// Len returns the number of rules.
func (s *Set) Len() int { return len(s.ruleByEntry) }
