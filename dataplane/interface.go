package dataplane

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// Interface is a network interface to count on, or a pattern of their names.
type Interface struct {
	// Name is a name, or a pattern of path.Match: "eth*", "en[op]*". An interface that a pattern matches is counted on
	// from the moment at which the instance takes it: at the start, or when the interface is made or gets its name. An
	// entry with the whole name goes before a pattern, and of patterns the first one that matches is taken.
	Name string

	// Mode in which received packets are counted: [ModeAuto], the default, [ModeNative], [ModeGeneric] or [ModeTCX].
	Mode Mode

	// Optional: the host may lack the interface, or every interface of the pattern. Without it that is the
	// condition [CodeInterfaceMissing], and an instance that finds none of its interfaces does not start.
	Optional bool

	// Direction in which flows are counted: [DirectionBoth], the default, [DirectionIngress] or [DirectionEgress].
	Direction InterfaceDirection
}

// InterfaceDirection is the direction in which flows are counted on an interface.
type InterfaceDirection string

// The directions of an [Interface].
const (
	DirectionBoth    InterfaceDirection = "both"
	DirectionIngress InterfaceDirection = "ingress" // received packets alone
	DirectionEgress  InterfaceDirection = "egress"  // sent packets alone
)

// InterfaceDirections returns the words for [Interface.Direction].
func InterfaceDirections() []InterfaceDirection {
	return []InterfaceDirection{DirectionBoth, DirectionIngress, DirectionEgress}
}

// mostInterfaces bounds the entries of a list, which is searched for each flow and at each event of a link.
const mostInterfaces = 1024

// maxPattern bounds the length of a pattern, which may be longer than the names that it matches.
const maxPattern = 64

// IsPattern reports whether the name is a pattern.
func (i Interface) IsPattern() bool { return strings.ContainsAny(i.Name, `*?[\`) }

// Matches reports whether the interface of that name is this one, or is one of the pattern.
func (i Interface) Matches(name string) bool {
	if i.Name == name || !i.IsPattern() {
		return i.Name == name
	}
	is, err := path.Match(i.Name, name)
	return is && err == nil
}

// Counts reports whether flows of a direction are counted on the interface.
func (i Interface) Counts(d flow.Direction) bool {
	return i.Direction == "" || i.Direction == DirectionBoth || (i.Direction == DirectionEgress) == (d == flow.Egress)
}

// Waits reports whether the interface may come later: it is optional, or a pattern.
func (i Interface) Waits() bool { return i.Optional || i.IsPattern() }

// FindInterface returns the entry of a list for the interface of that name: the whole name goes before a pattern.
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

// Validate reports every rule that the interface breaks by itself, in an error that satisfies
// errors.Is(err, ErrInvalid).
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

// badPattern returns why a pattern can match no interface, or "".
func badPattern(pattern string) string {
	_, err := path.Match(pattern, "")
	switch {
	case err != nil:
		return "the pattern is not complete: close each [, and write a character behind each \\"
	case len(pattern) > maxPattern:
		return fmt.Sprintf("the pattern is longer than %d bytes", maxPattern)
	case !utf8.ValidString(pattern):
		return "the pattern is not UTF-8"
	case strings.ContainsAny(pattern, "/: \t\n\v\f\r\x00"):
		return "no name of an interface has blanks, / or :"
	}
	return ""
}

// ReachesInterface returns an error that satisfies errors.Is(err, ErrInvalid) if a flow is counted on no interface of
// the list, whatever interfaces exist: the flow's interface is not in the list, or its direction is not counted
// there. A list without entries is an error for flows that name an interface alone.
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
