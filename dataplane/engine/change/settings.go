package change

import (
	"cmp"
	"fmt"
	"io/fs"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/backend"
)

// live has the settings that can change while an instance runs.
var live = map[string]bool{
	"interfaces":              true,
	"mirror.counters":         true,
	"mirror.history_period":   true,
	"mirror.latency_counters": true,
	"poll.period":             true,
	"poll.idle_period":        true,
	"xdp.keep_pins":           true,
}

// Settings returns the settings in which two configurations differ, without flows, named and ordered as in a configuration
// file. The engine must have filled in its defaults in both. If some settings cannot change at run time, Settings fails
// with ErrRestart and names all of them.
func Settings(from, to dataplane.Config) ([]dataplane.FieldChange, error) {
	// Backends open only if there is an interface. So adding the first one needs a restart, and so does removing the last.
	interfacesLive := len(from.Interfaces) > 0 && len(to.Interfaces) > 0

	var changes []dataplane.FieldChange
	var restart []string
	compare("", reflect.ValueOf(normal(from)), reflect.ValueOf(normal(to)), func(name, a, b string) {
		changes = append(changes, dataplane.FieldChange{Field: name, From: a, To: b})
		if !live[name] || name == "interfaces" && !interfacesLive {
			restart = append(restart, fmt.Sprintf("%s (%s -> %s)", name, a, b))
		}
	})
	if len(restart) > 0 {
		return nil, fmt.Errorf("%w: %s", dataplane.ErrRestart, strings.Join(restart, ", "))
	}
	return changes, nil
}

// normal fills in the defaults that the engine leaves to its parts, and drops what does not count as a setting.
func normal(c dataplane.Config) dataplane.Config {
	c.Flows = nil // not a setting
	c.Sets = slices.SortedFunc(slices.Values(c.Sets), func(a, b dataplane.Set) int { return cmp.Compare(a.Name, b.Name) })
	c.Words = slices.Sorted(slices.Values(c.Words))
	c.Start = cmp.Or(c.Start, dataplane.StartStrict)
	c.Poll.Period = cmp.Or(c.Poll.Period, dataplane.DefaultPollPeriod)
	c.Poll.IdlePeriod = cmp.Or(c.Poll.IdlePeriod, max(c.Poll.Period, dataplane.DefaultIdlePeriod))
	c.RDMA.CommandsPerSecond = cmp.Or(c.RDMA.CommandsPerSecond, backend.DefaultCommandsPerSecond)
	c.RDMA.ByteBasis = cmp.Or(c.RDMA.ByteBasis, dataplane.BasisUnknown)
	c.XDP.TCX = cmp.Or(c.XDP.TCX, "first")
	if len(c.XDP.Beside) == 0 {
		c.XDP.Beside = dataplane.Besides()
	}

	c.Interfaces = slices.Clone(c.Interfaces) // the backing array belongs to the caller
	for i := range c.Interfaces {
		n := &c.Interfaces[i]
		n.Mode = cmp.Or(n.Mode, dataplane.ModeAuto)
		n.Direction = cmp.Or(n.Direction, dataplane.DirectionBoth)
	}
	return c
}

// compare calls differ with the name and both values of each field that differs.
func compare(prefix string, a, b reflect.Value, differ func(name, a, b string)) {
	for i := range a.NumField() {
		name := prefix + settingName(a.Type().Field(i).Name)
		x, y := a.Field(i), b.Field(i)
		switch {
		case x.Kind() == reflect.Struct:
			compare(name+".", x, y, differ)
		case x.Kind() == reflect.Slice && x.Len() == 0 && y.Len() == 0:
		case x.Type() == reflect.TypeFor[[]dataplane.Set](): // DeepEqual would look into each of a million addresses
			from, to := settingText(x), settingText(y)
			if from == to {
				to += " with other elements"
			}
			if p, q := x.Interface().([]dataplane.Set), y.Interface().([]dataplane.Set); !slices.EqualFunc(p, q, sameSet) {
				differ(name, from, to)
			}
		case !reflect.DeepEqual(x.Interface(), y.Interface()):
			differ(name, settingText(x), settingText(y))
		}
	}
}

// sameSet compares the elements without their order.
func sameSet(a, b dataplane.Set) bool {
	if a.Name != b.Name || len(a.Elements) != len(b.Elements) {
		return false
	}
	return slices.Equal(a.Elements, b.Elements) ||
		slices.Equal(slices.SortedFunc(slices.Values(a.Elements), netip.Prefix.Compare), slices.SortedFunc(slices.Values(b.Elements), netip.Prefix.Compare))
}

// settingName returns the name of a Config field in a configuration file: "max_flows" for "MaxFlows".
func settingName(field string) string {
	if strings.ToUpper(field) == field { // RDMA, CPU, MLX5
		return strings.ToLower(field)
	}
	var b strings.Builder
	for i, r := range field {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// settingText formats a value as in a configuration file.
func settingText(v reflect.Value) string {
	if v.Kind() == reflect.String {
		return cmp.Or(v.String(), `""`)
	}
	switch x := v.Interface().(type) {
	case time.Duration:
		return x.String()
	case fs.FileMode:
		return fmt.Sprintf("%04o", uint32(x))
	case []dataplane.Interface:
		names := make([]string, len(x))
		for i, n := range x {
			names[i] = interfaceText(n)
		}
		return "[" + strings.Join(names, ", ") + "]"
	case []dataplane.Set:
		sets := make([]string, len(x))
		for i, s := range x {
			sets[i] = fmt.Sprintf("%s of %d", s.Name, len(s.Elements))
		}
		return "[" + strings.Join(sets, ", ") + "]"
	case []dataplane.QueuePair:
		names := make([]string, len(x))
		for i, q := range x {
			names[i] = q.Name
		}
		return "[" + strings.Join(names, ", ") + "]"
	}
	return fmt.Sprint(v.Interface())
}

// interfaceText formats an interface and leaves out defaults.
func interfaceText(n dataplane.Interface) string {
	text := n.Name
	if n.Mode != dataplane.ModeAuto {
		text += "=" + string(n.Mode)
	}
	if n.Direction != dataplane.DirectionBoth {
		text += " " + string(n.Direction)
	}
	if n.Optional {
		text += " optional"
	}
	return text
}
