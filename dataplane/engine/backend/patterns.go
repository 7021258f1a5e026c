package backend

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/dataplane"
)

// Patterns are the entries of the configuration. A backend counts on the interface of an entry that is one name and not
// optional. It counts on another interface while that exists and an entry matches it, in the form of that entry with
// the interface's name.
type Patterns []dataplane.Interface

// Waiting returns the entry of an interface that may come later.
func (p Patterns) Waiting(name string) (dataplane.Interface, bool) {
	i, ok := dataplane.FindInterface(p, name)
	if !ok || !i.Waits() {
		return dataplane.Interface{}, false
	}
	i.Name = name
	return i, true
}

// Resolve returns the interfaces of the entries in a network namespace, and the names of those that may come and go.
func (p Patterns) Resolve(ns *Netns) (list []dataplane.Interface, later []string, err error) {
	for _, i := range p {
		if !i.Waits() {
			list = append(list, i)
		}
	}
	if len(list) == len(p) {
		return list, nil, nil
	}
	err = ns.Do(func() error {
		all, err := net.Interfaces()
		for _, ifi := range all {
			if i, ok := p.Waiting(ifi.Name); ok {
				list, later = append(list, i), append(later, ifi.Name)
			}
		}
		return err
	})
	return list, later, err
}

// Unmatched returns the patterns that are not optional and that no interface of a list matches.
func (p Patterns) Unmatched(list []dataplane.Interface) (names []string) {
	for _, i := range p {
		if !i.Optional && i.IsPattern() && !slices.ContainsFunc(list, func(o dataplane.Interface) bool { return i.Matches(o.Name) }) {
			names = append(names, i.Name)
		}
	}
	return names
}

// CheckExist returns an error that satisfies errors.Is(err, dataplane.ErrUnplaced) if no interface of the entries exists in
// a network namespace, unless all of them are optional.
func (p Patterns) CheckExist(ns *Netns) error {
	var wanted, there []string
	for _, i := range p {
		if !i.Optional {
			wanted = append(wanted, i.Name)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	err := ns.Do(func() error {
		all, err := net.Interfaces()
		for _, ifi := range all {
			there = append(there, ifi.Name)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("listing the interfaces: %w", err)
	}
	for _, name := range there {
		if _, ok := dataplane.FindInterface(p, name); ok {
			return nil
		}
	}
	return fmt.Errorf("interfaces %s do not exist; there are: %s: %w", strings.Join(wanted, ", "), strings.Join(there, ", "), dataplane.ErrUnplaced)
}
