package dataplane_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

func parsed(t testing.TB, name, text string) flow.Flow {
	t.Helper()
	m, err := flow.ParseMatch(text)
	if err != nil {
		t.Fatal(err)
	}
	return flow.Flow{Name: name, Match: m}
}

func with(f flow.Flow, edit func(*flow.Flow)) flow.Flow {
	edit(&f)
	return f
}

func TestDiffFlowsNamesEachChange(t *testing.T) {
	web, dns, old := parsed(t, "web", "tcp dport 80"), parsed(t, "dns", "udp dport 53"), parsed(t, "old", "icmp")
	drop := func(f *flow.Flow) { f.Action = flow.Drop }
	named := func(name string) func(*flow.Flow) { return func(f *flow.Flow) { f.Name = name } }
	current := []flow.Flow{web, dns, old}
	for _, c := range []struct {
		what  string
		flows []flow.Flow
		opts  dataplane.SetOptions
		want  string // lines of String, and the number of unchanged flows
		err   error
	}{
		{what: "the same", flows: []flow.Flow{old, dns, web}, want: "3"},
		{what: "none", want: "- dns\n- old\n- web\n0"},
		{what: "none, and the others stay", opts: dataplane.SetOptions{KeepOthers: true}, want: "3"},
		{what: "add, change and remove", flows: []flow.Flow{parsed(t, "b", "any"), web, with(dns, drop), parsed(t, "a", "any")},
			want: "+ a\n+ b\n~ dns: count -> drop\n- old\n1"},
		{what: "every field", flows: []flow.Flow{web, with(old, func(f *flow.Flow) {
			*f = parsed(t, "old", "icmp type 8")
			f.Priority, f.Direction, f.Action, f.Interface, f.Latency, f.Backend, f.Labels = 7, flow.Egress, flow.Drop, "eth0", true, "xdp", map[string]string{"b": "2", "a": "1"}
		})}, opts: dataplane.SetOptions{KeepOthers: true},
			want: "~ old: match \"icmp\" -> \"icmp type 8\", priority 0 -> 7, direction ingress -> egress, count -> drop, interface any -> eth0, latency false -> true, backend default -> xdp, labels \"\" -> \"a=1,b=2\", counts anew\n2"},
		{what: "rename", flows: []flow.Flow{dns, old, with(web, named("front"))}, opts: dataplane.SetOptions{Renames: map[string]string{"web": "front"}}, want: "~ front: was web\n2"},
		{what: "rename and change", flows: []flow.Flow{dns, old, with(with(web, named("front")), drop)}, opts: dataplane.SetOptions{Renames: map[string]string{"web": "front"}},
			want: "~ front: was web, count -> drop\n2"},
		{what: "a rename that was made", flows: []flow.Flow{web, dns, old}, opts: dataplane.SetOptions{Renames: map[string]string{"http": "web"}}, want: "3"},
		{what: "a new name that is not given", flows: current, opts: dataplane.SetOptions{Renames: map[string]string{"web": "front"}}, err: dataplane.ErrInvalid},
		{what: "an old name that is given", flows: append([]flow.Flow{parsed(t, "front", "any")}, current...), opts: dataplane.SetOptions{Renames: map[string]string{"web": "front"}}, err: dataplane.ErrInvalid},
		{what: "a new name that is taken", flows: []flow.Flow{dns, old}, opts: dataplane.SetOptions{Renames: map[string]string{"web": "dns"}}, err: dataplane.ErrExists},
		{what: "two of one new name", flows: []flow.Flow{parsed(t, "x", "any")}, opts: dataplane.SetOptions{Renames: map[string]string{"web": "x", "dns": "x"}}, err: dataplane.ErrInvalid},
		{what: "its own name", flows: current, opts: dataplane.SetOptions{Renames: map[string]string{"web": "web"}}, err: dataplane.ErrInvalid},
		{what: "an old name that is none", flows: []flow.Flow{parsed(t, "x", "any")}, opts: dataplane.SetOptions{Renames: map[string]string{"absent": "x"}}, err: dataplane.ErrNotFound},
		{what: "a rename that counts other packets", flows: []flow.Flow{parsed(t, "front", "any")}, opts: dataplane.SetOptions{Renames: map[string]string{"web": "front"}}, err: dataplane.ErrInvalid},
		{what: "a name twice", flows: []flow.Flow{web, web}, err: dataplane.ErrInvalid},
		{what: "a flow that breaks a rule", flows: []flow.Flow{{Name: "with space"}}, err: dataplane.ErrInvalid},
	} {
		t.Run(c.what, func(t *testing.T) {
			d, err := dataplane.DiffFlows(current, c.flows, c.opts)
			if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			if err != nil {
				return
			}
			if got := d.String() + fmt.Sprint(d.Unchanged); got != c.want {
				t.Errorf("difference\n%s\nwant\n%s", got, c.want)
			}
			if d.Empty() != !strings.Contains(c.want, "\n") {
				t.Errorf("Empty is %v", d.Empty())
			}
		})
	}
}

func ExampleDifference() {
	web, _ := flow.ParseMatch("tcp dport 80")
	dns, _ := flow.ParseMatch("udp dport 53")
	current := []flow.Flow{{Name: "web", Match: web}, {Name: "dns", Match: dns}, {Name: "all"}}
	wanted := []flow.Flow{{Name: "front", Match: web}, {Name: "dns", Match: dns, Action: flow.Drop}, {Name: "rest", Priority: 9}}
	d, err := dataplane.DiffFlows(current, wanted, dataplane.SetOptions{Renames: map[string]string{"web": "front"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(d)
	// Output:
	// - all
	// ~ dns: count -> drop
	// ~ front: was web
	// + rest
}
