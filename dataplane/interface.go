package dataplane

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// Interface is a network interface to count on, or a pattern for several.
type Interface struct {
	// Name is the name of one interface, or a pattern for path.Match: "eth*", "en[op]*". Counting on a matching
	// interface begins at the start, or as soon as the interface appears or gets its name. If several entries match, an
	// exact name wins over patterns, and the first pattern over later ones.
	Name string

	// Mode for received packets: [ModeAuto], [ModeNative], [ModeGeneric] or [ModeTCX]. Empty means ModeAuto.
	Mode Mode

	// Optional allows the host to lack the interface, or every interface of the pattern. A missing interface otherwise
	// raises [CodeInterfaceMissing], and the start fails if all are missing.
	Optional bool

	// Direction of the flows to count. Empty means [DirectionBoth].
	Direction InterfaceDirection
}

// InterfaceDirection is the direction of the flows counted on an [Interface].
type InterfaceDirection string

// The words for [Interface.Direction].
const (
	DirectionBoth    InterfaceDirection = "both"
	DirectionIngress InterfaceDirection = "ingress" // received packets only
	DirectionEgress  InterfaceDirection = "egress"  // sent packets only
)

// InterfaceDirections returns the words for [Interface.Direction].
func InterfaceDirections() []InterfaceDirection {
	return []InterfaceDirection{DirectionBoth, DirectionIngress, DirectionEgress}
}

// mostInterfaces limits the entries of Config.Interfaces. The list is searched for each flow and on each netlink event.
const mostInterfaces = 1024

// mostPattern is the longest pattern. A pattern can be longer than a name: "[ab]" matches one letter.
const mostPattern = 64

// IsPattern reports whether Name is a pattern.
func (i Interface) IsPattern() bool { return strings.ContainsAny(i.Name, `*?[\`) }

// Matches reports whether the entry is for the named interface.
func (i Interface) Matches(name string) bool {
	if i.Name == name || !i.IsPattern() {
		return i.Name == name
	}
	is, err := path.Match(i.Name, name)
	return is && err == nil
}

// Counts reports whether the interface counts flows of this direction.
func (i Interface) Counts(d flow.Direction) bool {
	return i.Direction == "" || i.Direction == DirectionBoth || (i.Direction == DirectionEgress) == (d == flow.Egress)
}

// Waits reports whether it is normal for the interface to appear only after the start, because it is optional or a pattern.
func (i Interface) Waits() bool { return i.Optional || i.IsPattern() }

// FindInterface returns the entry for the named interface. An exact name wins over patterns.
func FindInterface(list []Interface, name string) (found Interface, ok bool) {
	for _, i := range list {
		if i.Name == name {
			return i, true
		}
		if !ok && i.Matches(name) {
			found, ok = i, true
		}
	}
	return found, ok
}

// Validate reports every invalid field, in an error that satisfies errors.Is(err, ErrInvalid). [Config.Validate] also
// checks the interfaces against each other.
func (i Interface) Validate() error {
	var errs problems
	if !i.IsPattern() {
		errs.note(flow.ValidateInterface(i.Name))
	} else if cause := badPattern(i.Name); cause != "" {
		errs.add("interface %q: %s", i.Name, cause)
	}
	if !slices.Contains(xdpModes, i.Mode) {
		errs.add("interface %q: mode %q: use auto, native, generic or tcx", i.Name, i.Mode)
	}
	if i.Direction != "" && !slices.Contains(InterfaceDirections(), i.Direction) {
		errs.add("interface %q: direction %q: use both, ingress or egress", i.Name, i.Direction)
	}
	return errs.err()
}

// badPattern says why a pattern cannot match any interface, or returns "".
func badPattern(pattern string) string {
	_, err := path.Match(pattern, "")
	switch {
	case err != nil:
		return "the pattern is not complete: close each [, and write a character behind each \\"
	case len(pattern) > mostPattern:
		return fmt.Sprintf("the pattern is longer than %d bytes", mostPattern)
	case !utf8.ValidString(pattern):
		return "the pattern is not UTF-8"
	case strings.ContainsAny(pattern, "/: \t\n\v\f\r\x00"):
		return "no name of an interface has blanks, / or :"
	}
	return ""
}

// ReachesInterface checks that at least one interface of the list can count a flow: its own interface must be in the list
// and count its direction. The error satisfies errors.Is(err, ErrInvalid). It does not matter which interfaces the host
// has now. An empty list suits every flow without an interface of its own.
func ReachesInterface(list []Interface, f flow.Flow) error {
	if f.Interface == "" {
		if len(list) == 0 || slices.ContainsFunc(list, func(i Interface) bool { return i.Counts(f.Direction) }) {
			return nil
		}
		return problems{fmt.Errorf("flow %q: no interface counts %s flows; give one of them direction both or %s", f.Name, f.Direction, f.Direction)}
	}
	i, ok := FindInterface(list, f.Interface)
	switch {
	case !ok:
		return problems{fmt.Errorf("flow %q: interface %q is not listed under interfaces; add it there", f.Name, f.Interface)}
	case i.IsPattern() && i.Name == f.Interface:
		return problems{fmt.Errorf("flow %q: interface %q is a pattern; name one interface, or leave the interface out for all of them", f.Name, f.Interface)}
	case !i.Counts(f.Direction):
		return problems{fmt.Errorf("flow %q: interface %q counts %s flows alone; change its direction or the flow's", f.Name, f.Interface, i.Direction)}
	}
	return nil
}
