package backend

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/dataplane"
)

// Patterns are the interfaces of the configuration. An entry with one name, unless optional, is always counted on, even
// if the interface is missing for now. Other entries wait: they apply to each existing interface of their names, with
// their settings and the interface's name.
type Patterns []dataplane.Interface

// Interfaces lists the names of the network interfaces in a namespace. Netns implements it.
type Interfaces interface{ Interfaces() ([]string, error) }

// Interfaces implements Interfaces.
func (n *Netns) Interfaces() (names []string, err error) {
	err = n.Do(func() error {
		all, err := net.Interfaces()
		for _, i := range all {
			names = append(names, i.Name)
		}
		return err
	})
	return names, err
}

// Waiting returns the entry that waits for an interface, with the interface's name in it.
func (p Patterns) Waiting(name string) (dataplane.Interface, bool) {
	i, ok := dataplane.FindInterface(p, name)
	if !ok || !i.Waits() {
		return dataplane.Interface{}, false
	}
	i.Name = name
	return i, true
}

// Resolve returns the interfaces to count on now in a network namespace.
func (p Patterns) Resolve(ns Interfaces) (list []dataplane.Interface, err error) {
	for _, i := range p {
		if !i.Waits() {
			list = append(list, i)
		}
	}
	if len(list) == len(p) {
		return list, nil
	}
	all, err := ns.Interfaces()
	for _, name := range all {
		if i, ok := p.Waiting(name); ok {
			list = append(list, i)
		}
	}
	return list, err
}

// Unmatched returns the patterns without a match in a list of interfaces. It leaves out optional ones.
func (p Patterns) Unmatched(list []dataplane.Interface) (names []string) {
	for _, i := range p {
		if !i.Optional && i.IsPattern() && !slices.ContainsFunc(list, func(o dataplane.Interface) bool { return i.Matches(o.Name) }) {
			names = append(names, i.Name)
		}
	}
	return names
}

// CheckExist returns dataplane.ErrUnplaced if none of the interfaces exists in a network namespace. It ignores optional
// entries.
func (p Patterns) CheckExist(ns Interfaces) error {
	var wanted []string
	for _, i := range p {
		if !i.Optional {
			wanted = append(wanted, i.Name)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	there, err := ns.Interfaces()
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
