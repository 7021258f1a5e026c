package flow

import (
	"fmt"
	"iter"
)

// namedSet begins the name of a set in the text form.
const namedSet = '@'

// maxSetName limits the name of a set in bytes.
const maxSetName = 63

// ValidateSetName checks the name of a set: 1 to 63 bytes of [A-Za-z0-9._-], starting with a letter or a digit. The error is a
// *FieldError.
func ValidateSetName(name string) error {
	if cause, fix := checkSetName(name); cause != "" {
		return &FieldError{Cause: cause, Fix: fix}
	}
	return nil
}

// checkSetName is checkName without ":" and "/": the text form may need them behind a name later.
func checkSetName(name string) (cause, fix string) {
	switch {
	case name == "":
		return "the set has no name", "name it as in src @blocklist"
	case len(name) > maxSetName:
		return fmt.Sprintf("the name %q is longer than %d bytes", clip(name), maxSetName), "shorten it"
	}
	for i, c := range name {
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		switch {
		case i == 0 && !alnum:
			return fmt.Sprintf("the name %q starts with %q", name, c), "start it with a letter or a digit"
		case !alnum && c != '.' && c != '_' && c != '-':
			return fmt.Sprintf("the name %q holds %q", name, c), "use letters, digits and . _ - only"
		}
	}
	return "", ""
}

// takesNamedSets reports whether the field can name a set, which has IP addresses.
func (f *field) takesNamedSets() bool { return f.isAddress() && (f.name == "src" || f.name == "dst") }

// onlyAddresses is the cause of an error about a field that names a set and cannot.
const onlyAddresses = "only src and dst of ipv4 and ipv6 take a named set"

// checkNamed checks a choice of a named set.
func (c *Choice) checkNamed(f *field, bad func(cause, fix string)) {
	cause, fix := checkSetName(c.Set)
	switch {
	case !f.takesNamedSets():
		bad(onlyAddresses, "write the values into the match")
	case len(c.Values) > 0:
		bad("it has values and a named set", "add the values to the set")
	case cause != "":
		bad(cause, fix)
	}
}

// NamedSets yields the choices of named sets, each with the name of its field as in a [FieldError]: "ipv4.src" or
// "vxlan.inner.ipv6.dst".
func (m Match) NamedSets() iter.Seq2[string, Choice] {
	return func(yield func(string, Choice) bool) { m.namedSets("", yield) }
}

// namedSets is NamedSets. path leads to m. It returns false if yield did.
func (m *Match) namedSets(path string, yield func(string, Choice) bool) bool {
	for _, c := range m.Choices {
		if c.Set != "" && !yield(path+c.path(), c) {
			return false
		}
	}
	if path != "" {
		return true // a valid match has no tunnel inside a tunnel
	}
	for i := range clauses {
		c := &clauses[i]
		if c.inner == nil || !c.has(m) {
			continue
		}
		if in := *c.inner(m); in != nil && !in.namedSets(c.name+"."+wordInner+".", yield) {
			return false
		}
	}
	return true
}

// RefuseNamedSets returns an error if the match names a set, for whoever cannot look into sets. The error is a *FieldError. It names
// the set, and how to do without.
func (m Match) RefuseNamedSets() error {
	for field, c := range m.NamedSets() {
		elements := "{10.0.0.0/8, 192.0.2.1}"
		if c.Clause == "ipv6" {
			elements = "{2001:db8::/32, 2001:db9::1}"
		}
		return &FieldError{
			Field: field,
			Cause: fmt.Sprintf("@%s is a named set, and no flow is counted by one yet", c.Set),
			Fix:   fmt.Sprintf("write the elements into the match, as in %s %s: %d at most", c.Field, elements, mostValues),
		}
	}
	return nil
}
