package dataplane

import (
	"fmt"
	"net/netip"

	"github.com/flowtally/flowtally/dataplane/flow"
	"github.com/flowtally/flowtally/internal/spelling"
)

// Set is a set of addresses that flows name: "ipv4 src @blocklist". A match of ipv4 looks for an element of IPv4, and one of ipv6 for
// an element of IPv6.
type Set struct {
	// Name of the set, unique in an instance: see [flow.ValidateSetName].
	Name string

	// Elements in any order. A prefix must not have bits behind its length. One that another element contains changes nothing.
	Elements []netip.Prefix
}

const (
	// MostSets is how many sets an instance can have.
	MostSets = 64
	// MostElements is how many elements a set can have.
	MostElements = 1 << 20
	// MostElementsOfAll is how many elements all sets of an instance can have together.
	MostElementsOfAll = 1 << 22
)

// Validate checks the name and the elements. The error satisfies errors.Is(err, ErrInvalid), and names the set and the first wrong
// element.
func (s Set) Validate() error {
	var errs problems
	if err := flow.ValidateSetName(s.Name); err != nil {
		errs.add("set %q: %w", s.Name, err)
	}
	if n := len(s.Elements); n > MostElements {
		errs.add("set %q: %d elements, more than %d; join neighbours into prefixes, or make two sets of it", s.Name, n, MostElements)
	}
	for _, p := range s.Elements {
		if !p.IsValid() || p.Addr().Zone() != "" {
			errs.add("set %q: %v is no prefix", s.Name, p)
			break
		}
		if m := p.Masked(); m != p {
			errs.add("set %q: %v has bits behind the first %d; did you mean %v?", s.Name, p, p.Bits(), m)
			break
		}
	}
	return errs.err()
}

// checkSets checks each set, and that none is defined twice.
func (p *problems) checkSets(sets []Set) {
	if len(sets) > MostSets {
		p.add("sets: %d of them: at most %d", len(sets), MostSets)
		return
	}
	defined := make(map[string]bool, len(sets))
	total := 0
	for _, s := range sets {
		total += len(s.Elements)
		p.note(s.Validate())
		if defined[s.Name] {
			p.add("set %q: defined twice; rename one", s.Name)
		}
		defined[s.Name] = true
	}
	if total > MostElementsOfAll {
		p.add("sets: %d elements together: at most %d", total, MostElementsOfAll)
	}
}

// KnowsSets returns an error if the flow names a set that is not among the given ones. The error is a *[flow.FieldError].
func KnowsSets(sets []Set, f flow.Flow) error {
	for field, c := range f.Match.NamedSets() {
		names := make([]string, len(sets))
		known := false
		for i, s := range sets {
			names[i] = s.Name
			known = known || s.Name == c.Set
		}
		if known {
			continue
		}
		fix := "define it under sets"
		if near := spelling.Nearest(c.Set, names); near != "" {
			fix = fmt.Sprintf("did you mean @%s?", near)
		}
		return &flow.FieldError{Flow: f.Name, Field: field, Cause: fmt.Sprintf("there is no set @%s", c.Set), Fix: fix}
	}
	return nil
}
