package xdp

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/flowtally/flowtally/xdp/members"
)

// sets are the named sets of prefixes. A rule asks for an address in a set by a bit of its key (Membership). The tables of all sets are
// in one map, whose size is fixed: a set that comes or grows takes another map, and programs that read it (sets_move.go).
//
// Elements come and go by stores into the map of the attached programs, without Datapath.mu: an address is banned while a great change
// of rules builds trees.
//
// Lock order: Datapath.changes, Datapath.mu, life, mu.
type sets struct {
	// life is held shared for a change of elements up to its end, which waits for running programs. It is held exclusively, with
	// Datapath.mu, when sets come or go, move to another memory, or are closed. So either lock is enough to read the fields below.
	life       sync.RWMutex
	memory     *sharedMap // nil: no set was ever open
	byName     map[string]*memberSet
	pairs      [2][outerPairs]pair // by level and bit; guarded by Datapath.mu
	nextPinned bool                // see pinNext

	mu sync.Mutex // guards the elements of all sets
}

// memberSet is an open set.
type memberSet struct {
	name   string
	number int // of its root and its constants
	shape  members.Shape
	secret members.Secret
	base   int // first word of its tables

	// filled are the elements, or nil if an earlier process has filled the tables. Then nobody changes them until OpenSets does.
	filled *members.Set

	changes uint64 // guarded by sets.mu
}

// SetSpec is a set to open.
type SetSpec struct {
	Name     string         // 1 to 64 bytes
	Room     members.Shape  // for at least so many elements, and for those of Elements. A set grows when it needs more
	Elements []netip.Prefix // of IPv4 and IPv6; IPv4 in IPv6 is IPv6
}

// SetInfo describes an open set.
type SetInfo struct {
	Name     string
	Elements int
	Room     members.Shape

	// Adopted is set if an earlier process has left the set in the pins. Programs find the elements of that process until
	// OpenSets opens the set again, and no change of single elements is possible.
	Adopted bool
}

// OpenSets opens sets, all or none. Programs that ask for sets are exchanged for ones that read a greater memory. No packet misses an
// element meanwhile.
//
// A set that an earlier process has left in the pins keeps its name, and its place in the rules of that process. Each packet meets the
// elements of before or those of the spec. So what is an element of both is never missed.
func (dp *Datapath) OpenSets(specs ...SetSpec) error {
	if err := dp.enterChanges(); err != nil {
		return err
	}
	defer dp.leaveChanges()
	dp.sets.life.Lock()
	defer dp.sets.life.Unlock()

	if err := dp.openSets(specs); err != nil {
		return fmt.Errorf("opening %d sets: %w", len(specs), err)
	}
	return nil
}

func (dp *Datapath) openSets(specs []SetSpec) error {
	if len(specs) == 0 {
		return nil
	}

	var plans []setPlan
	come := map[string]bool{}
	for _, spec := range specs {
		was := dp.sets.byName[spec.Name]
		switch {
		case spec.Name == "" || len(spec.Name) > maxSetName:
			return fmt.Errorf("%w: the name %q has %d bytes, and should have 1 to %d", ErrInvalid, spec.Name, len(spec.Name), maxSetName)
		case come[spec.Name] || was != nil && was.filled != nil:
			return fmt.Errorf("set %s: %w", spec.Name, ErrExists)
		}
		come[spec.Name] = true
		if err := checkElements(spec.Elements); err != nil {
			return fmt.Errorf("set %s: %w", spec.Name, err)
		}
		shape, err := roomFor(slices.Values(spec.Elements), spec.Room)
		if err != nil {
			return fmt.Errorf("set %s: %w", spec.Name, err)
		}
		plans = append(plans, setPlan{
			name:     spec.Name,
			was:      was,
			shape:    shape,
			elements: slices.Values(spec.Elements),
		})
	}
	if n := len(plans) + len(dp.sets.stay(come)); n > maxSets {
		return fmt.Errorf("set %s: %w: %d sets, and at most %d can be open", specs[len(specs)-1].Name, ErrFull, n, maxSets)
	}
	return dp.moveSets(append(dp.sets.stay(come), plans...))
}

// stay returns plans for the sets that have none yet. They keep their elements.
func (ss *sets) stay(planned map[string]bool) []setPlan {
	var plans []setPlan
	for name, s := range ss.byName {
		if !planned[name] {
			plans = append(plans, setPlan{name: name, was: s, shape: s.shape})
		}
	}
	return plans
}

// CloseSets closes sets, all or none, and forgets their Memberships. No rule may ask for them.
func (dp *Datapath) CloseSets(names ...string) error {
	if err := dp.enterChanges(); err != nil {
		return err
	}
	defer dp.leaveChanges()
	dp.sets.life.Lock()
	defer dp.sets.life.Unlock()

	ss := &dp.sets
	for _, name := range names {
		s := ss.byName[name]
		if s == nil {
			return fmt.Errorf("closing set %s: %w", name, ErrNotFound)
		}
		for level, bit := range ss.pairsOf(s) {
			if dp.tables.asks(level, bit) {
				return fmt.Errorf("closing set %s: %w: a rule asks for the %s", name, ErrInvalid, ss.pairs[level][bit].field)
			}
		}
	}
	for _, name := range names {
		s := ss.byName[name]
		if s == nil {
			continue // named twice
		}
		for level, bit := range ss.pairsOf(s) {
			ss.setPair(level, bit, pair{})
		}
		s.clearRecord(ss.memory.words)
		delete(ss.byName, name)
	}
	return nil
}

// pairsOf yields level and bit of each pair of a set.
func (ss *sets) pairsOf(s *memberSet) func(yield func(level, bit int) bool) {
	return func(yield func(level, bit int) bool) {
		for level := range ss.pairs {
			for bit, p := range ss.pairs[level] {
				if p.used && p.set == s.number && !yield(level, bit) {
					return
				}
			}
		}
	}
}

// asks reports whether a rule looks at an answer.
func (t *tables) asks(level, bit int) (asks bool) {
	t.everyTuple(func(u *tuple) {
		var k Key
		*k.words() = u.mask
		h := []*Headers{&k.Out, &k.In}[level]
		asks = asks || u.rules > 0 && answersOf(h)>>bit&1 != 0
	})
	return asks
}

// Sets lists the open sets by name.
func (dp *Datapath) Sets() []SetInfo {
	ss := &dp.sets
	ss.life.RLock()
	defer ss.life.RUnlock()
	ss.mu.Lock()
	defer ss.mu.Unlock()

	var list []SetInfo
	for _, s := range ss.byName {
		i := SetInfo{Name: s.name, Room: s.shape, Adopted: s.filled == nil}
		if s.filled != nil {
			i.Elements = s.filled.Len()
		}
		list = append(list, i)
	}
	slices.SortFunc(list, func(a, b SetInfo) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Members returns the elements of a set, in no order.
func (dp *Datapath) Members(set string) (elements []netip.Prefix, err error) {
	ss := &dp.sets
	ss.life.RLock()
	defer ss.life.RUnlock()
	s, err := dp.filledSet(set)
	if err != nil {
		return nil, fmt.Errorf("listing set %s: %w", set, err)
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return slices.Collect(s.filled.All()), nil
}

// AddMembers adds elements to a set, all or none. It returns how many of them are new. When it returns, every packet that any program
// still looks at finds the new elements.
//
// Elements that stay are never missed. A set that has no room grows: that takes a memory of twice the size and a load of programs,
// and changes of other sets wait. If the kernel refuses to wait for running programs, the error comes with the elements in the set.
func (dp *Datapath) AddMembers(set string, elements ...netip.Prefix) (added int, err error) {
	if err := checkElements(elements); err != nil {
		return 0, fmt.Errorf("adding %d elements to set %s: %w", len(elements), set, err)
	}

	full := false
	err = dp.changeMembers(set, func(s *memberSet) error {
		added, full, err = dp.fill(s, elements)
		return err
	})
	if err == nil && full {
		added, err = dp.growSet(set, elements, false)
	}
	if err != nil {
		return 0, fmt.Errorf("adding %d elements to set %s: %w", len(elements), set, err)
	}
	return added, nil
}

// RemoveMembers removes elements from a set. It returns how many of them the set had. What other elements cover stays in the set. When
// it returns, no program finds the removed elements.
func (dp *Datapath) RemoveMembers(set string, elements ...netip.Prefix) (removed int, err error) {
	err = checkElements(elements)
	if err == nil {
		err = dp.changeMembers(set, func(s *memberSet) error {
			removed, err = dp.empty(s, elements)
			return err
		})
	}
	if err != nil {
		return removed, fmt.Errorf("removing %d elements from set %s: %w", len(elements), set, err)
	}
	return removed, nil
}

// ReplaceMembers gives a set other elements. Each address is found as before or as after. It adds the new elements before it removes
// the others, so what either of them covers throughout is never missed.
func (dp *Datapath) ReplaceMembers(set string, elements []netip.Prefix) error {
	err := checkElements(elements)
	if err != nil {
		return fmt.Errorf("replacing set %s by %d elements: %w", set, len(elements), err)
	}

	wanted := make(map[netip.Prefix]bool, len(elements))
	for _, p := range elements {
		wanted[p.Masked()] = true
	}
	full := false
	err = dp.changeMembers(set, func(s *memberSet) error {
		var gone []netip.Prefix
		for p := range s.filled.All() {
			if !wanted[p] {
				gone = append(gone, p)
			}
		}
		if _, full, err = dp.fill(s, elements); err != nil || full {
			return err
		}
		_, err = dp.empty(s, gone)
		return err
	})
	if err == nil && full { // a memory for the new elements alone takes the place of this one
		_, err = dp.growSet(set, elements, true)
	}
	if err != nil {
		return fmt.Errorf("replacing set %s by %d elements: %w", set, len(elements), err)
	}
	return nil
}

func checkElements(elements []netip.Prefix) error {
	for i, p := range elements {
		if !p.IsValid() {
			return fmt.Errorf("%w: element %d, %v, is no prefix", ErrInvalid, i+1, p)
		}
	}
	return nil
}

// filledSet returns a set whose elements may change. The caller holds life.
func (dp *Datapath) filledSet(name string) (*memberSet, error) {
	if dp.closed {
		return nil, ErrClosed
	}
	s := dp.sets.byName[name]
	if s == nil {
		return nil, ErrNotFound
	}
	if s.filled == nil {
		return nil, fmt.Errorf("%w: an earlier process has filled it; open it with its elements first", ErrInvalid)
	}
	return s, nil
}

// changeMembers changes the elements of a set, and waits until no program runs that began before the change. Changes of several
// goroutines wait at the same time.
func (dp *Datapath) changeMembers(name string, change func(*memberSet) error) error {
	ss := &dp.sets
	ss.life.RLock()
	defer ss.life.RUnlock()
	s, err := dp.filledSet(name)
	if err != nil {
		return err
	}

	ss.mu.Lock()
	err = change(s)
	s.changes++
	last := s.changes
	ss.mu.Unlock()

	if waited := dp.grace.wait(); waited != nil {
		return errors.Join(err, waited)
	}
	ss.mu.Lock()
	if s.changes == last { // a later change has not been waited for; its own wait frees the memory
		s.filled.Reclaim()
	}
	ss.mu.Unlock()
	return err
}

// fill adds elements, and returns how many of them are new. If the set has no room for all, it is full, and has the elements of before.
// The caller holds sets.mu: nobody else is told meanwhile that an element is there which goes again.
func (dp *Datapath) fill(s *memberSet, elements []netip.Prefix) (added int, full bool, err error) {
	var fresh []netip.Prefix
	waited := false
	for i := 0; i < len(elements); {
		is, err := s.filled.Add(elements[i])
		switch {
		case errors.Is(err, members.ErrFull) && !waited: // memory of removed elements may wait to be freed
			waited = true
			if err := dp.settle(s); err != nil {
				return len(fresh), false, err
			}
			continue
		case errors.Is(err, members.ErrFull):
			_, err := dp.empty(s, fresh)
			return 0, err == nil, err
		case err != nil:
			return len(fresh), false, err
		}
		if is {
			fresh = append(fresh, elements[i])
		}
		i++
	}
	return len(fresh), false, nil
}

// empty removes elements, and returns how many the set had. The caller holds sets.mu.
func (dp *Datapath) empty(s *memberSet, elements []netip.Prefix) (removed int, err error) {
	for i := 0; i < len(elements); {
		is, err := s.filled.Remove(elements[i])
		if errors.Is(err, members.ErrFresh) { // once at most: nobody adds an element meanwhile
			if err := dp.settle(s); err != nil {
				return removed, err
			}
			continue
		}
		if err != nil {
			return removed, err
		}
		if is {
			removed++
		}
		i++
	}
	return removed, nil
}

// settle waits until no program runs that began before the last change of a set. The caller holds sets.mu.
func (dp *Datapath) settle(s *memberSet) error {
	if err := dp.grace.wait(); err != nil {
		return err
	}
	s.filled.Reclaim()
	return nil
}
