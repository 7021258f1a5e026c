package selection

import (
	"slices"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/shm"
)

func TestNamesAndPatternsSelectCounters(t *testing.T) {
	counters := []string{"web", "web6", "native/dns4", "native/dns6", "a.b"}
	for _, c := range []struct {
		names, want, unmet []string
	}{
		{nil, counters, nil},
		{[]string{"web"}, []string{"web"}, nil},
		{[]string{"web*"}, []string{"web", "web6"}, nil},
		{[]string{"native*"}, []string{"native/dns4", "native/dns6"}, nil}, // a slash stops nothing
		{[]string{"*/dns[46]", "web", "web"}, []string{"web", "native/dns4", "native/dns6"}, nil},
		{[]string{"a?b"}, []string{"a.b"}, nil},
		{[]string{"z*", "web", "none"}, []string{"web"}, []string{"z*", "none"}},
		{[]string{"WEB"}, nil, []string{"WEB"}},
	} {
		s, err := New(c.names, Options{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, name := range counters {
			if s.Has(shm.Entry{Name: name}) {
				got = append(got, name)
			}
		}
		if !slices.Equal(got, c.want) || !slices.Equal(s.UnmetNames(), c.unmet) {
			t.Errorf("%q selects %q and leaves %q; want %q and %q", c.names, got, s.UnmetNames(), c.want, c.unmet)
		}
	}
}

func TestLabelConditionsSelectCounters(t *testing.T) {
	counters := []shm.Entry{
		{Name: "ops", Labels: map[string]string{"team": "ops", "site": "ams"}},
		{Name: "oops", Labels: map[string]string{"team": "oops"}},
		{Name: "empty", Labels: map[string]string{"team": ""}},
		{Name: "odd", Labels: map[string]string{"team": "a=b!~[c]/*\n"}},
		{Name: "bare"},
	}
	for text, want := range map[string]string{
		"team":                 "ops oops empty odd",
		"!team":                "bare",
		"team=ops":             "ops",
		"team=op*":             "ops",
		"team=*":               "ops oops empty odd",
		"team=":                "empty",
		"team!=ops":            "oops empty odd bare",
		"team!=*ops":           "empty odd bare",
		"team=~o{1,2}ps":       "ops oops",
		"team=~op":             "", // of the whole value
		"team=~ops|oops":       "ops oops",
		"team=~.*":             "ops oops empty odd",
		"team!~o.*":            "empty odd bare",
		"team=a=b!~[c]/*\n":    "odd", // a value is found by its own text, too
		`team=a=b!~\[c\]/\*`:   "",
		`team=a=b!~\[c\]/\*?`:  "odd",
		"site=ams":             "ops",
		"site=ams team":        "ops",
		"site=ams team=oops":   "",
		"team !site":           "oops empty odd",
		"Team":                 "",
		"team=~(?i)OPS":        "ops",
		"team!=ops team!=oops": "empty odd bare",
	} {
		s, err := New(nil, Options{Label: strings.Split(text, " ")})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range counters {
			if s.Has(e) {
				got = append(got, e.Name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("--label %q selects %q, want %q", text, got, want)
		}
	}
	s, err := New(nil, Options{Label: []string{"team=ops", "site=fra", "!team"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range counters {
		s.Has(e)
	}
	if got := s.UnmetLabels(); !slices.Equal(got, []string{"site=fra"}) {
		t.Errorf("no counter meets %q", got)
	}
}

func TestDirectionSelectsFlowsOfOneSide(t *testing.T) {
	counters := []shm.Entry{
		{Name: "in", Kind: "flow", Text: "ingress on any: tcp dport 443"},
		{Name: "out", Kind: "flow", Text: "egress on eth0: any"},
		{Name: "sent", Kind: shm.KindCompletion, Text: "ingress on any: any"},
		{Name: "odd", Kind: "flow", Text: "made by another program"},
	}
	for direction, want := range map[string]string{"": "in out sent odd", "ingress": "in", "egress": "out"} {
		s, err := New(nil, Options{Direction: direction})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range counters {
			if s.Has(e) {
				got = append(got, e.Name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("--direction %q selects %q, want %q", direction, got, want)
		}
	}
}

func TestNewRefusesMalformedLabelsAndPatterns(t *testing.T) {
	for text, want := range map[string]string{
		"":         "write KEY=VALUE",
		"=ops":     "write KEY=VALUE",
		"!team=x":  "write KEY=VALUE",
		"te!am":    "write KEY=VALUE",
		"team~x":   "write KEY=VALUE",
		"team=[a":  "it has *, ? and [a-z]",
		"team=~(a": "RE2's",
		"team!~)x": "RE2's",
	} {
		if _, err := New(nil, Options{Label: []string{text}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--label %q: %v, want %q", text, err, want)
		}
	}
	for _, o := range []Options{{Direction: "sideways"}, {SumBy: []string{""}}, {SumBy: []string{"team=ops"}}} {
		if _, err := New(nil, o); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	if _, err := New([]string{"[a"}, Options{}); err == nil || !strings.Contains(err.Error(), "is no pattern") {
		t.Errorf("[a: %v", err)
	}
}
