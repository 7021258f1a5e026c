package flow_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// Nobody takes a named set for one without elements: neither its plain matches nor its masks are there.
func TestANamedSetHasNoAlternatives(t *testing.T) {
	for _, c := range []struct{ text, field, set string }{
		{"ipv4 src @blocklist", "ipv4.src", "@blocklist"},
		{"ipv6 dst != @allow tcp dport {22, 80}", "ipv6.dst", "@allow"},
		{"ipv4 dst {10.0.0.1, 10.0.0.3} gre inner ipv4 src @inside", "gre.inner.ipv4.src", "@inside"},
	} {
		m := parsed(t, c.text)
		alternatives, err := m.Alternatives()
		expanded, expandErr := m.Expand()
		for _, err := range []error{err, expandErr, m.RefuseNamedSets()} {
			var broken *flow.FieldError
			if !errors.As(err, &broken) || broken.Field != c.field || !strings.Contains(broken.Cause, c.set) || broken.Fix == "" {
				t.Errorf("%s: error %v, want one about %s and %s", c.text, err, c.field, c.set)
			}
		}
		if len(alternatives)+len(expanded) > 0 {
			t.Errorf("%s: alternatives %v, expanded %v", c.text, alternatives, expanded)
		}
	}
	if err := parsed(t, "ipv4 src {10.0.0.1, 10.0.0.3}").RefuseNamedSets(); err != nil {
		t.Errorf("a set without a name: %v", err)
	}
}

// What RefuseNamedSets proposes is a match.
func TestTheFixForANamedSetCanBeWritten(t *testing.T) {
	for _, text := range []string{"ipv4 src @a", "ipv6 dst @a"} {
		var broken *flow.FieldError
		if !errors.As(parsed(t, text).RefuseNamedSets(), &broken) {
			t.Fatalf("%s is not refused", text)
		}
		_, example, _ := strings.Cut(broken.Fix, "as in ")
		example, _, found := strings.Cut(example, "}")
		clause, _, _ := strings.Cut(text, " ")
		if _, err := flow.ParseMatch(clause + " " + example + "}"); err != nil || !found {
			t.Errorf("%s: the fix %q: %v", text, broken.Fix, err)
		}
	}
}

func TestNamedSetsAreListedWithTheirFields(t *testing.T) {
	var got []string
	for field, c := range parsed(t, "ipv4 dst @a src != @b vxlan inner ipv6 src @a dst {::1, ::3}").NamedSets() {
		got = append(got, fmt.Sprintf("%s %v %s", field, c.Not, c.Set))
	}
	if want := []string{"ipv4.src true b", "ipv4.dst false a", "vxlan.inner.ipv6.src false a"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for range parsed(t, "ipv4 dst @a src @b").NamedSets() {
		break // the iterator ends with its loop
	}
}

// Elements come and go, so a named set may have whatever address another match asks for.
func TestANamedSetMayOverlapAnyAddress(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"ipv4 src @a", "ipv4 src 10.0.0.1", true},
		{"ipv4 src != @a", "ipv4 src {10.0.0.1, 10.0.0.3}", true},
		{"ipv4 src @a", "ipv4 src @b", true},
		{"ipv4 src @a", "ipv4 src != @a", true},
		{"ipv4 src @a dst 10.0.0.1", "ipv4 src @a dst 10.0.0.2", false},
		{"ipv4 src @a", "ipv6 src @a", false},
		{"ipv4 src @a tcp dport 80", "ipv4 src @a udp", false},
		{"ipv4 src @a tcp dport {80, 443}", "tcp dport 22", false},
	} {
		a, b := flow.MustParse("a", c.a), flow.MustParse("b", c.b)
		if flow.Overlap(&a, &b) != c.want || flow.Overlap(&b, &a) != c.want {
			t.Errorf("%s and %s overlap: want %v", c.a, c.b, c.want)
		}
	}
}

func TestNamedSetsAreEqualByName(t *testing.T) {
	a := parsed(t, "ipv4 src @a dst @b")
	if !a.Equal(parsed(t, "ipv4 dst @b src @a")) {
		t.Error("the order of fields counts")
	}
	for _, other := range []string{"ipv4 src @b dst @b", "ipv4 src != @a dst @b", "ipv4 src 10.0.0.1 dst @b", "ipv4 src {10.0.0.1, 10.0.0.3} dst @b"} {
		if a.Equal(parsed(t, other)) {
			t.Errorf("%s equals %s", a, other)
		}
	}
}

func TestNamesOfSetsAreChecked(t *testing.T) {
	for name, valid := range map[string]bool{
		"a": true, "0": true, "blocklist": true, "a.b_c-D9": true, strings.Repeat("x", 63): true,
		"": false, ".a": false, "-": false, "_a": false, "a/b": false, "a:b": false, "a b": false, "@a": false, "ä": false, "a\n": false, strings.Repeat("x", 64): false,
	} {
		if err := flow.ValidateSetName(name); (err == nil) != valid || err != nil && !errors.Is(err, flow.ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
