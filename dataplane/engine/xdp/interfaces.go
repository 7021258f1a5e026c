package xdp

import (
	"fmt"
	"slices"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/xdp"
)

// patterns are the entries of the configuration. An entry is in the list of interfaces that are counted on
// (hooks.interfaces) if it is one name that is not optional. Another interface is in that list while it exists and an
// entry matches it, in the form of that entry with its own name.
type patterns []dataplane.Interface

// waiting returns the entry of an interface that may come later.
func (p patterns) waiting(name string) (dataplane.Interface, bool) {
	i, ok := dataplane.FindInterface(p, name)
	if !ok || !i.Waits() {
		return dataplane.Interface{}, false
	}
	i.Name = name
	return i, true
}

// resolve returns the interfaces of the entries, and which of them came later, on a host with the interfaces there.
func (p patterns) resolve(there []string) (list []dataplane.Interface, later []string) {
	for _, i := range p {
		if !i.Waits() {
			list = append(list, i)
		}
	}
	for _, name := range there {
		if i, ok := p.waiting(name); ok {
			list, later = append(list, i), append(later, name)
		}
	}
	return list, later
}

// wait reports whether an interface may come later.
func (p patterns) wait() bool { return slices.ContainsFunc(p, dataplane.Interface.Waits) }

// unmatched returns an error for each pattern that is not optional and that no interface of a list matches.
func (p patterns) unmatched(list []dataplane.Interface) (errs []*unmatchedError) {
	for _, i := range p {
		if !i.Optional && i.IsPattern() && !slices.ContainsFunc(list, func(o dataplane.Interface) bool { return i.Matches(o.Name) }) {
			errs = append(errs, &unmatchedError{i.Name})
		}
	}
	return errs
}

// unmatchedError says that no interface matches a pattern.
type unmatchedError struct{ pattern string }

func (e *unmatchedError) Error() string {
	return fmt.Sprintf("interface %s: no interface matches the pattern", e.pattern)
}
func (e *unmatchedError) Unwrap() error { return xdp.ErrNotFound }
