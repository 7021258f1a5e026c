package catalogue

import (
	"errors"
	"fmt"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/shm"
)

// Room is what the limits of the mirror have room for, beside the entries that were taken. It is valid until an entry comes
// or goes.
type Room struct {
	m       *Catalogue
	further [2]int              // by class: entries that come, less those by which the limit rises
	gone    map[*Inherited]bool // taken over
	aside   map[*Inherited]bool // set aside
	full    error               // the last refusal
}

// Room returns the room for entries.
func (m *Catalogue) Room() *Room {
	return &Room{m: m, gone: make(map[*Inherited]bool), aside: make(map[*Inherited]bool)}
}

// Renew makes the room valid after entries have come or gone.
func (r *Room) Renew() {
	r.further = [2]int{}
	clear(r.gone)
	clear(r.aside)
}

// Take takes the room that [Catalogue.Entry] needs for the same arguments. It touches no entry. The error is that of Entry for
// the limits: dataplane.ErrFull. A file that cannot grow is not known before.
func (r *Room) Take(want shm.Entry, cookies ...uint64) error {
	m, class := r.m, classOf(want)
	was := m.past(want, cookies, r.gone)
	if was == nil {
		was = m.leftBy(want, r.gone)
	}
	there := was != nil && m.inherited[was.Name] == was && !r.gone[was]
	old := m.inherited[want.Name]
	aside := old != nil && old != was && !r.gone[old] && !r.aside[old]

	further := r.further
	if aside { // beyond the limit
		further[classOf(old.Entry)]--
	}
	if there && (was.isAside() || r.aside[was]) {
		further[classOf(was.Entry)]++
	}
	if !there || classOf(was.Entry) != class {
		if err := m.writer.Room(want, further[class]); errors.Is(err, shm.ErrFull) {
			r.full = err
			return fmt.Errorf("%w: %w", dataplane.ErrFull, err)
		}
	}

	if further[class]++; there {
		further[classOf(was.Entry)]--
		r.gone[was] = true
	}
	if aside {
		r.aside[old] = true
	}
	r.further = further
	return nil
}

// Note has Conditions list the last refusal. It is called when the entries that were taken are made: each of those ends the
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
