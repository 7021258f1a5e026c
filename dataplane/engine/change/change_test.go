package change

import (
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/dataplane/flow"
)

// TestPlanOfEachKindOfChange has the plan of each kind of change of the set web, dns, old.
func TestPlanOfEachKindOfChange(t *testing.T) {
	f := func(name, match string) flow.Flow { return flow.MustParse(name, match) }
	web, dns, old := f("web", "tcp dport 443"), f("dns", "udp dport 53"), f("old", "tcp dport 80")
	there := []backend.Placed{{Flow: web, Order: 0}, {Flow: dns, Order: 1}, {Flow: old, Order: 2}}
	drop, labelled, elsewhere, all := dns.Clone(), dns.Clone(), f("dns", "udp dport 54"), f("all", "tcp")
	drop.Action, labelled.Labels = flow.Drop, map[string]string{"team": "net"}
	for _, c := range []struct {
		name  string
		flows []flow.Flow
		opts  dataplane.SetOptions
		diff  string
		alter string // name, R: rules, L: entry made anew, A: counts anew
		list  string
	}{
		{"nothing", []flow.Flow{web, dns, old}, dataplane.SetOptions{}, "", "", "web dns old"},
		{"action", []flow.Flow{web, drop, old}, dataplane.SetOptions{}, "~ dns: count -> drop\n", "dns:R", "web dns old"},
		{"labels", []flow.Flow{web, labelled, old}, dataplane.SetOptions{}, "~ dns: labels \"\" -> \"team=net\"\n", "dns:L", "web dns old"},
		{"match", []flow.Flow{web, elsewhere, old}, dataplane.SetOptions{}, "~ dns: match \"udp dport 53\" -> \"udp dport 54\", counts anew\n", "dns:RLA", "web dns old"},
		{"fewer", []flow.Flow{web}, dataplane.SetOptions{}, "- dns\n- old\n", "", "web"},
		{"others stay", []flow.Flow{drop}, dataplane.SetOptions{KeepOthers: true}, "~ dns: count -> drop\n", "dns:R", "web dns old"},
		{"some stay", []flow.Flow{old, drop}, dataplane.SetOptions{Keep: []string{"web", "absent", "old"}}, "~ dns: count -> drop\n", "dns:R", "old dns web"},
		{"one that wins comes before one that stays", []flow.Flow{all}, dataplane.SetOptions{Keep: []string{"web"}},
			"+ all\n- dns\n- old\n~ web: behind all\n", "web:R", "all web"},
		{"rename", []flow.Flow{f("front", "tcp dport 443")}, dataplane.SetOptions{Keep: []string{"web", "dns"}, Renames: map[string]string{"web": "front"}},
			"~ front: was web\n- old\n", "web:L", "front dns"},
	} {
		d, p, err := New(there, 3, c.flows, c.opts)
		var alter []string
		for _, x := range p.Alter {
			text := x.Name + ":"
			for _, mark := range []struct {
				is   bool
				mark string
			}{{x.Rules, "R"}, {x.Relist, "L"}, {x.Anew, "A"}} {
				if mark.is {
					text += mark.mark
				}
			}
			alter = append(alter, text)
		}
		if err != nil || d.String() != c.diff || strings.Join(alter, " ") != c.alter || strings.Join(p.List, " ") != c.list {
			t.Errorf("%s: %v\n%saltered %q, list %q; want\n%saltered %q, list %q", c.name, err, d, alter, p.List, c.diff, c.alter, c.list)
		}
		if total := d.Unchanged + len(d.Added) + len(d.Changed) + len(d.Renamed); total != len(p.List) {
			t.Errorf("%s: %d flows in the difference, %d in the set", c.name, total, len(p.List))
		}
	}
}

func TestSettingsListsChangesOrDemandsARestart(t *testing.T) {
	from := dataplane.Config{
		Interfaces: []dataplane.Interface{{Name: "eth0"}}, Mirror: dataplane.MirrorConfig{Mode: 0o644},
		Flows: []flow.Flow{{Name: "a"}},
	}
	change := func(f func(*dataplane.Config)) dataplane.Config {
		to := from
		f(&to)
		return to
	}
	sets := func(element string) dataplane.Config {
		return dataplane.Config{Sets: []dataplane.Set{{Name: "a", Elements: []netip.Prefix{netip.MustParsePrefix(element)}}}}
	}
	for _, c := range []struct {
		from    dataplane.Config // left out: from
		to      dataplane.Config
		changes string
		refused string
	}{
		{to: from},
		{to: change(func(c *dataplane.Config) { // defaults that are written out, and no setting
			c.Flows, c.Poll.Period, c.XDP.TCX, c.RDMA.CommandsPerSecond = nil, dataplane.DefaultPollPeriod, "first", 10000
			c.Interfaces, c.QueuePairs = []dataplane.Interface{{Name: "eth0", Mode: "auto"}}, []dataplane.QueuePair{}
		})},
		{to: change(func(c *dataplane.Config) {
			c.Poll.Period, c.XDP.KeepPins, c.Mirror.Counters = time.Millisecond, true, 7
		}),
			changes: "~ setting mirror.counters: 0 -> 7\n~ setting poll.period: 10ms -> 1ms\n~ setting xdp.keep_pins: false -> true\n"},
		{to: change(func(c *dataplane.Config) { c.Poll.IdlePeriod = dataplane.DefaultIdlePeriod })},
		{to: change(func(c *dataplane.Config) { c.Poll.IdlePeriod = time.Second }), changes: "~ setting poll.idle_period: 100ms -> 1s\n"},
		{to: change(func(c *dataplane.Config) {
			c.Interfaces = []dataplane.Interface{{Name: "eth0", Mode: "native", Direction: "both"}, {Name: "en*", Direction: "egress", Optional: true}}
		}), changes: "~ setting interfaces: [eth0] -> [eth0=native, en* egress optional]\n"},
		{to: change(func(c *dataplane.Config) {
			c.Sets = []dataplane.Set{{Name: "b"}, {Name: "a", Elements: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}
		}), refused: "needs a restart: sets ([] -> [a of 1, b of 0])"},
		{from: sets("10.0.0.0/8"), to: sets("10.0.0.0/8")},
		{from: sets("10.0.0.0/8"), to: sets("11.0.0.0/8"), refused: "needs a restart: sets ([a of 1] -> [a of 1] with other elements)"},
		{to: change(func(c *dataplane.Config) { c.Interfaces = nil }), refused: "needs a restart: interfaces ([eth0] -> [])"},
		{to: change(func(c *dataplane.Config) {
			c.Poll.Period, c.RDMA.Steal, c.Mirror.Mode, c.Backend = time.Millisecond, true, 0o600, "xdp"
		}), refused: `needs a restart: backend ("" -> xdp), mirror.mode (0644 -> 0600), rdma.steal (false -> true)`},
	} {
		before := from
		if c.from.Sets != nil {
			before = c.from
		}
		changes, err := Settings(before, c.to)
		got := dataplane.Difference{Settings: changes}.String()
		if got != c.changes || (err == nil) != (c.refused == "") || err != nil && (err.Error() != c.refused || !errors.Is(err, dataplane.ErrRestart)) {
			t.Errorf("changes %q, error %v; want %q, %q", got, err, c.changes, c.refused)
		}
	}
}

// TestLiveSettingsExist: each name of the table is a setting.
func TestLiveSettingsExist(t *testing.T) {
	var names []string
	var walk func(prefix string, typ reflect.Type)
	walk = func(prefix string, typ reflect.Type) {
		for i := range typ.NumField() {
			name := prefix + settingName(typ.Field(i).Name)
			names = append(names, name)
			if typ.Field(i).Type.Kind() == reflect.Struct {
				walk(name+".", typ.Field(i).Type)
			}
		}
	}
	walk("", reflect.TypeFor[dataplane.Config]())
	for name := range live {
		if !slices.Contains(names, name) {
			t.Errorf("%q is no setting of %q", name, names)
		}
	}
	for _, name := range []string{"xdp.pin_dir", "rdma.mlx5", "poll.cpu", "queue_pairs", "mirror.wait_group"} {
		if !slices.Contains(names, name) {
			t.Errorf("no setting is called %q: %q", name, names)
		}
	}
}
