package selection

import (
	"fmt"
	"regexp"
	"sync/atomic"
)

// requirement is one --label.
type requirement struct {
	text string
	key  string
	not  bool
	is   func(value string) bool // tests the value; nil: any value will do
	met  atomic.Bool             // by some counter so far
}

// requirementText matches [!]KEY, or a key, an operator and a value.
var requirementText = regexp.MustCompile(`(?s)^(!?)([^=!~]+)(?:(=~|!~|!=|=)(.*))?$`)

func parseRequirement(text string) (*requirement, error) {
	const next = "write KEY=VALUE, KEY!=VALUE, KEY=~REGEXP, KEY!~REGEXP, KEY or !KEY"
	m := requirementText.FindStringSubmatch(text)
	if m == nil || m[1] != "" && m[3] != "" {
		return nil, fmt.Errorf("--label %q is no condition on a label; %s", text, next)
	}

	not, key, operator, value := m[1], m[2], m[3], m[4]
	r := &requirement{text: text, key: key, not: not == "!" || operator == "!=" || operator == "!~"}
	switch operator {
	case "=", "!=":
		if err := checkPattern(value); err != nil {
			return nil, fmt.Errorf("--label %q: %w", text, err)
		}
		pattern := flat(value)
		r.is = func(v string) bool { return v == value || matches(pattern, v) }
	case "=~", "!~":
		re, err := regexp.Compile(`^(?s:` + value + `)$`)
		if err != nil {
			return nil, fmt.Errorf("--label %q: %w; the syntax is RE2's", text, err)
		}
		r.is = re.MatchString
	}
	return r, nil
}

// holds reports whether a counter meets the requirement, and remembers if one did. As in Prometheus and kubectl, a
// counter without the label meets KEY!=VALUE, KEY!~REGEXP and !KEY.
func (r *requirement) holds(value string, has bool) bool {
	ok := (has && (r.is == nil || r.is(value))) != r.not
	if ok {
		r.met.Store(true)
	}
	return ok
}
