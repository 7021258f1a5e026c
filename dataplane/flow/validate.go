package flow

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits in bytes.
const (
	maxName       = 63
	maxInterface  = 15 // IFNAMSIZ without its NUL
	maxLabelKey   = 63
	maxLabelBytes = 255 // the mirror's space for all labels of a flow, each stored as key=value and a separator
)

// Validate reports every mistake of a flow in one joined error. Its parts are *FieldError and name the flow.
func (f Flow) Validate() error {
	broken := f.Match.check("", false)
	bad := func(field, cause, fix string) {
		broken = append(broken, &FieldError{Field: field, Cause: cause, Fix: fix})
	}

	if cause, fix := checkName(f.Name); cause != "" {
		bad("name", cause, fix)
	}
	if int(f.Direction) >= len(directionWords) {
		bad("direction", fmt.Sprintf("value %d has no word", f.Direction), "use "+oneOf(directionWords[:]))
	}
	if int(f.Action) >= len(actionWords) {
		bad("action", fmt.Sprintf("value %d has no word", f.Action), "use "+oneOf(actionWords[:]))
	}
	if f.Interface != "" {
		if cause := checkInterface(f.Interface); cause != "" {
			bad("interface", cause, "name it as `ip link` does, or leave it empty for every interface")
		}
	}
	if cause, fix := f.Backend.check(); cause != "" {
		bad("backend", cause, fix)
	}
	checkLabels(f.Labels, bad)

	for _, e := range broken {
		e.Flow = f.Name
	}
	return join(broken)
}

// checkLabels checks each label, and that all of them fit into the mirror.
func checkLabels(labels map[string]string, bad func(field, cause, fix string)) {
	total := 0
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		total += len(key) + len("=") + len(labels[key]) + 1
		if cause, fix := checkLabel(key, labels[key]); cause != "" {
			bad("labels["+clip(key)+"]", cause, fix)
		}
	}
	if total > maxLabelBytes {
		bad("labels", fmt.Sprintf("they take %d bytes together, more than %d", total, maxLabelBytes), "shorten them or leave some out")
	}
}

// Validate reports every mistake of a match in one joined error. Its parts are *FieldError.
func (m Match) Validate() error { return join(m.check("", false)) }

func join(broken []*FieldError) error {
	if len(broken) == 0 {
		return nil
	}
	errs := make([]error, len(broken))
	for i, e := range broken {
		errs[i] = e
	}
	return errors.Join(errs...)
}

// ValidateName checks the name of a flow, or of another counter of the mirror. The error is a *FieldError.
func ValidateName(name string) error {
	if cause, fix := checkName(name); cause != "" {
		return &FieldError{Field: "name", Cause: cause, Fix: fix}
	}
	return nil
}

func checkName(name string) (cause, fix string) {
	switch {
	case name == "":
		return "the name is empty", "it is known by its name: give it one"
	case len(name) > maxName:
		return fmt.Sprintf("%q is longer than %d bytes", clip(name), maxName), "shorten it"
	}
	for i, c := range name {
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		switch {
		case i == 0 && !alnum:
			return fmt.Sprintf("%q starts with %q", name, c), "start it with a letter or a digit"
		case !alnum && !strings.ContainsRune("._:/-", c):
			return fmt.Sprintf("%q holds %q", name, c), "use letters, digits and . _ : / - only"
		}
	}
	return "", ""
}

// ValidateInterface checks that a network interface can have the name. The error is a *FieldError.
func ValidateInterface(name string) error {
	if cause := checkInterface(name); cause != "" {
		return &FieldError{Field: "interface", Cause: cause, Fix: "name it as `ip link` does"}
	}
	return nil
}

// checkInterface applies the rule of the kernel (dev_valid_name).
func checkInterface(name string) (cause string) {
	switch {
	case name == "":
		return "the name is empty"
	case len(name) > maxInterface:
		return fmt.Sprintf("%q is longer than %d bytes", clip(name), maxInterface)
	case name == "." || name == ".." || strings.ContainsAny(name, "/: \t\n\v\f\r\x00"):
		return fmt.Sprintf("%q is no name of an interface", name)
	}
	return ""
}

func checkLabel(key, value string) (cause, fix string) {
	const rule = "use a letter or _, then letters, digits and _ (Prometheus' rule)"
	switch {
	case key == "" || len(key) > maxLabelKey:
		return fmt.Sprintf("a key has 1 to %d bytes", maxLabelKey), rule
	case !utf8.ValidString(value):
		return "the value is not UTF-8", "encode it"
	case strings.ContainsFunc(value, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }):
		return "the value holds a control character", "leave it out"
	}
	for i := range len(key) {
		c := key[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return fmt.Sprintf("the key holds %q", c), rule
		}
	}
	return "", ""
}
