package catalogue

import (
	"errors"
	"fmt"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/shm"
)

// Room predicts whether the limits of the mirror permit further entries, before the first of them is made. A change calls Take
// for each entry that it is about to make. A Room is valid until an entry is added or removed; call Renew then.
type Room struct {
	m       *Catalogue
	further [2]int              // by class: entries to be made, minus those that raise the limit
	taken   map[*Inherited]bool // entries to be taken over
	aside   map[*Inherited]bool // entries to be set aside
	full    error               // the last refusal
}

// Room returns a Room without entries.
func (m *Catalogue) Room() *Room {
	return &Room{
		m:     m,
		taken: make(map[*Inherited]bool),
		aside: make(map[*Inherited]bool),
	}
}

// Renew forgets the entries of all Takes, because they are made by now or will not be.
func (r *Room) Renew() {
	r.further = [2]int{}
	clear(r.taken)
	clear(r.aside)
}

// Take takes the room that [Catalogue.Entry] needs with the same arguments, and touches no entry. dataplane.ErrFull: a limit does
// not permit the entry. Take cannot predict that the file system is full.
func (r *Room) Take(want shm.Entry, cookies ...uint64) error {
	m := r.m
	class := classOf(want)
	old := m.predecessor(want, cookies, r.taken)
	if old == nil {
		old = m.offeredTo(want, r.taken)
	}
	available := old != nil && m.inheritedByName[old.Name] == old && !r.taken[old]
	namesake := m.inheritedByName[want.Name]
	setAside := namesake != nil && namesake != old && !r.taken[namesake] && !r.aside[namesake]

	further := r.further
	if setAside { // it does not count against the limit any more
		further[classOf(namesake.Entry)]--
	}
	if available && (old.isAside() || r.aside[old]) {
		further[classOf(old.Entry)]++
	}
	if !available || classOf(old.Entry) != class {
		if err := m.writer.Room(want, further[class]); errors.Is(err, shm.ErrFull) {
			r.full = err
			return fmt.Errorf("%w: %w", dataplane.ErrFull, err)
		}
	}

	further[class]++
	if available {
		further[classOf(old.Entry)]--
		r.taken[old] = true
	}
	if setAside {
		r.aside[namesake] = true
	}
	r.further = further
	return nil
}

// Note makes Conditions list the last refusal. Call it after the entries were made, because each successful one ends the
// condition.
func (r *Room) Note() {
	if r.full == nil {
		return
	}
	f := &r.m.faults
	f.mu.Lock()
	defer f.mu.Unlock()
	f.full = r.full
}
