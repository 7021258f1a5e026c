package xdp

// classifier holds the rules in the form in which the packet path looks at
// them. It owns what of the programs is specific to it (constants of a load,
// shared memory) and knows nothing of hooks and counters' values.
//
// A change has up to three parts. prepare puts rules where programs find them,
// those that are attached or those loaded next; when it answers that the
// programs must be loaded again, the caller does so with constants and, an RCU
// grace period after the last hook runs the new ones, calls settle. abandon
// takes prepared rules out again when the load failed. Rules that need no load
// count from prepare on. All calls come from one goroutine at a time.
type classifier interface {
	// prepare adds all of rules or none.
	prepare(rules []Rule) (reload bool, err error)
	// constants are those of the next load.
	constants() constants
	// adopt: the programs that run were built with need and tuples, by a process
	// before this one. It answers their constants, as if they had been loaded and
	// settled here, or false when they do not serve all rules.
	adopt(need uint32, tuples []loadedTuple) (constants, bool)
	// settle: no program runs with constants older than the last.
	settle()
	// abandon removes rules that were prepared for constants that never ran.
	abandon(rules []Rule)
	// pair splits a change: rules of old that become rules of fresh where they are, rules
	// of old that go, and rules of fresh that come. Changes until done are those of the split.
	pair(old, fresh []Rule) (moves []move, gone, added []Rule, err error)
	// move makes rules others of their keys; programs see each as it was or as it is.
	move(moves []move)
	done()
	// remove takes out all of rules or none. No packet finds them when it
	// returns, but for those that are in the programs at that moment.
	remove(rules []Rule) error
	// rules lists what was added, ordered by rank.
	rules() []Rule
	// uses says whether some rule counts on the counter.
	uses(counter uint32) bool
	// stats fills in what it knows.
	stats(*Stats)
}

// constants of one load of the programs, apart from those of an interface.
type constants struct {
	need   uint32
	tuples []flowtallyFtTuple
}

// loadedTuple is what the meta map keeps of a tuple in the programs.
type loadedTuple struct {
	id     uint8
	single bool
	key    words // of a single tuple: what its programs compare with
}
