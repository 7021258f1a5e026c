package flow_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flowtally/flowtally/dataplane/flow"
)

func TestParseReturnsAValidFlowWithItsOptions(t *testing.T) {
	match, err := flow.ParseMatch("tcp dport 443")
	if err != nil {
		t.Fatal(err)
	}
	o := flow.Options{
		Priority: 5, Direction: flow.Egress, Action: flow.Drop, Interface: "eth0", Latency: true, Backend: flow.XDP, Labels: map[string]string{"k": "v"},
	}
	want := flow.Flow{
		Name: "web", Match: match, Priority: 5, Direction: flow.Egress, Action: flow.Drop, Interface: "eth0", Latency: true,
		Backend: flow.XDP, Labels: map[string]string{"k": "v"},
	}
	if d := cmp.Diff(want, flow.MustParse("web", "tcp dport 443", o)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(flow.Flow{Name: "web", Match: match}, flow.MustParse("web", "tcp dport 443")); d != "" {
		t.Error(d)
	}
	for _, c := range []struct {
		name, text string
		o          flow.Options
		want       string
	}{
		{"web", "tcp dprot 443", flow.Options{}, `flow "web": parsing match: `},
		{"web/", "any", flow.Options{Backend: "rmda"}, `did you mean "rdma"?`},
		{"", "any", flow.Options{}, "the name is empty"},
	} {
		f, err := flow.Parse(c.name, c.text, c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) || !cmp.Equal(f, flow.Flow{}) {
			t.Errorf("%q %q: %+v, %v; want an error with %q", c.name, c.text, f, err, c.want)
		}
		if !panics(func() { flow.MustParse(c.name, c.text, c.o) }) {
			t.Errorf("%q %q: no panic", c.name, c.text)
		}
	}
	var mistakes flow.ParseErrors
	if _, err := flow.Parse("web", "tcp dprot 443"); !errors.As(err, &mistakes) || !errors.Is(err, flow.ErrInvalid) {
		t.Errorf("%v holds no ParseErrors", err)
	}
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}
