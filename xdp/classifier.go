package xdp

// classifier holds the rules in the form that the packet path reads. It owns the parts of the
// programs that are specific to it (constants of a load, shared memory) and is independent of hooks
// and counters' values.
//
// A change has up to three parts. prepare puts rules into the memory of the attached programs, or
// of the programs loaded next. If it returns that the programs must be loaded again, the caller
// does so with constants and, an RCU grace period after the last hook runs the new ones, calls
// finishLoad. abandon takes prepared rules out again when the load failed. Rules that need no load
// count from prepare on. All calls come from one goroutine at a time.
type classifier interface {
	// prepare adds all of rules or none.
	prepare(rules []Rule) (reload bool, err error)
	// constants returns the constants of the next load.
	constants() constants
	// adopt: an earlier process built the running programs with need and tuples. It returns their
	// constants, as if they had been loaded and finished here, or false when they do not serve all
	// rules.
	adopt(need uint32, tuples []loadedTuple) (constants, bool)
	// check returns an error if a sample of packets would find other rules than a linear matcher finds.
	check() error
	// finishLoad: no program runs with constants older than the last.
	finishLoad()
	// abandon removes rules that were prepared for constants that never ran.
	abandon(rules []Rule)
	// pair splits a change: rules of old that become rules of fresh in place, rules of old that are
	// removed, and rules of fresh that are added. Changes until done belong to the split.
	pair(old, fresh []Rule) (moves []move, gone, added []Rule, err error)
	// move makes rules others of their keys; programs see each as it was or as it is.
	move(moves []move)
	done()
	// remove takes out all of rules or none. No packet finds them when it
	// returns, but for those that are in the programs at that moment.
	remove(rules []Rule) error
	// rules lists the added rules, ordered by rank.
	rules() []Rule
	// uses says whether some rule counts on the counter.
	uses(counter uint32) bool
	// stats fills in the classifier's fields.
	stats(*Stats)
}

// constants of one load of the programs, without the constants of an interface.
type constants struct {
	need   uint32
	tuples []flowtallyFtTuple
}

// loadedTuple is the meta map's record of a tuple in the programs.
type loadedTuple struct {
	id     uint8
	single bool
	key    words // of a single tuple: the key that its programs compare with
}
