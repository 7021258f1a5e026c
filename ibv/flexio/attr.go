package flexio

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
)

// ErrAttr is in every [AttrError]: an attribute breaks a rule of the reference, or does not fit into the device's
// field.
var ErrAttr = errors.New("invalid attribute")

// AttrError names an invalid attribute and the reason.
type AttrError struct {
	Struct string // name in the reference, for example "flexio_cq_attr"
	Field  string // "cq_period", or "cq_ring_qmem.daddr" in a nested structure; "" is the whole structure
	Reason string
}

func (e *AttrError) Error() string {
	return fmt.Sprintf("checking %s: %s", strings.TrimSuffix(e.Struct+"."+e.Field, "."), e.Reason)
}

func (e *AttrError) Unwrap() error { return ErrAttr }

// Values are fields of a structure by the names of the reference. A field that is left out is 0 in memory, and not given
// as an attribute. Its value has the type that suits it:
//
//   - a number, a flag or an address: any integer, or a bool. [Decode] returns a uint64;
//   - an enumeration: its number, or its name as docs/flexio.md has it, for example "RC";
//   - bytes: a slice or an array;
//   - an object of the SDK or of libibverbs: its number for the device;
//   - a structure: Values;
//   - a string, and a slice of strings or numbers.
type Values map[string]any

// Uint returns the number in a field as Decode returns it, or 0 if there is none.
func (v Values) Uint(name string) uint64 {
	n, _ := field{}.toNumber(v[name])
	return n
}

// Bytes returns the bytes in a field as Decode returns them, or nil if there are none.
func (v Values) Bytes(name string) []byte {
	b, _ := toBytes(v[name])
	return b
}

// Validate reports every attribute of a structure that is wrong, as an [AttrError], for example of "flexio_qp_attr". A
// use adds the rules of a function of the SDK that takes the structure:
//
//   - flexio_qp_attr: "create". Without it the QP may exist already, and is modified;
//   - flexio_wq_attr: "rq" or "sq", a receive or a send queue;
//   - flexio_cq_attr: "collapsed", a queue that a [Collapsed] counts.
func Validate(structure string, v Values, uses ...string) error {
	c := checks{of: structure}
	c.check(structure, v, uses...)
	return c.err()
}

// checks collects the errors of one structure.
type checks struct {
	of     string // the structure's name in the reference
	prefix string // prefix of field names while checking a nested structure
	errs   []error
}

// refuse adds an AttrError about the field.
func (c *checks) refuse(field, format string, args ...any) {
	name := strings.TrimSuffix(c.prefix+field, ".")
	c.errs = append(c.errs, &AttrError{Struct: c.of, Field: name, Reason: fmt.Sprintf(format, args...)})
}

// within puts the name of a nested structure ahead of its fields until leave is called.
func (c *checks) within(name string) (leave func()) {
	outer := c.prefix
	c.prefix += name + "."
	return func() { c.prefix = outer }
}

func (c *checks) err() error { return errors.Join(c.errs...) }

// check checks each value by the table of the structure, and then the rules between them.
func (c *checks) check(structure string, v Values, uses ...string) table {
	t, err := lookup(structure)
	if err != nil {
		c.refuse("", "no such structure")
		return t
	}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		if _, ok := t.find(name); !ok {
			c.refuse(name, "no such field")
		}
	}
	for _, f := range t.fields {
		if val, ok := v[f.name]; ok {
			c.value(f, val)
		}
	}
	if t.union {
		c.one(t, v)
	}

	all := rules[structure]
	for _, use := range uses {
		if !slices.ContainsFunc(all, func(r rule) bool { return r.use == use }) {
			c.refuse("", "no use %q", use)
		}
	}
	given := given{t, v}
	for _, r := range all {
		if (r.use == "" || slices.Contains(uses, r.use)) && r.wrong(given) {
			c.refuse(r.field, "%s", given.expand(r.says))
		}
	}
	return t
}

// one refuses a union of which not exactly one member is given.
func (c *checks) one(t table, v Values) {
	first := ""
	for _, f := range t.fields {
		switch {
		case v[f.name] == nil:
		case first != "":
			c.refuse(f.name, "%s is set too: a place holds one segment", first)
		default:
			first = f.name
		}
	}
	if first == "" {
		c.refuse(t.fields[0].name, "neither this segment nor another is set")
	}
}

// value checks one value by its row.
func (c *checks) value(f field, val any) {
	switch f.kind {
	case number:
		n, problem := f.toNumber(val)
		switch {
		case problem != "":
			c.refuse(f.name, "%s", problem)
		case f.names != nil && f.names[n] == "":
			c.refuse(f.name, "%d is unknown: %s", n, f.spellNames())
		case f.width < 64 && n >= 1<<f.width:
			c.refuse(f.name, "%d does not fit the device's field of %d bits: at most %d", n, f.width, uint64(1)<<f.width-1)
		}
	case object:
		switch n, problem := f.toNumber(val); {
		case problem != "":
			c.refuse(f.name, "%s: give the object's number, or leave it out", problem)
		case n > math.MaxUint32:
			c.refuse(f.name, "%d is no object's number, which has at most 32 bits", n)
		}
	case octets:
		switch b, ok := toBytes(val); {
		case !ok:
			c.refuse(f.name, "%T: give bytes", val)
		case f.width > 0 && len(b) != f.width/8:
			c.refuse(f.name, "%d bytes, the field has %d", len(b), f.width/8)
		}
	case text:
		c.text(f.name, val)
	case list:
		if reflect.ValueOf(val).Kind() != reflect.Slice {
			c.refuse(f.name, "%T: give a slice", val)
		} else if _, ok := val.([]string); !ok && f.ref == templates {
			c.refuse(f.name, "%T: give a slice of strings", val)
		}
	case inner:
		c.inner(f, val)
	}
}

// text refuses a string too long for the SDK's buffer, or with a zero byte, which would end it in C.
func (c *checks) text(name string, val any) {
	s, ok := val.(string)
	switch {
	case !ok:
		c.refuse(name, "%T: give a string", val)
	case strings.Contains(s, "\x00"):
		c.refuse(name, "has a byte of 0, where C ends it")
	case len(s) >= maxNameLen:
		c.refuse(name, "%d bytes: at most %d", len(s), maxNameLen-1)
	}
}

// inner checks a nested structure.
func (c *checks) inner(f field, val any) {
	v, ok := val.(Values)
	if !ok {
		c.refuse(f.name, "%T: give Values", val)
		return
	}
	defer c.within(f.name)()
	c.check(f.of, v)
	for _, name := range []string{"daddr", "humem_offset"} {
		if at := v.Uint(name); f.align > 0 && at%f.align != 0 {
			c.refuse(name, "%#x is not a multiple of %d", at, f.align)
		}
	}
}

// toNumber returns the number of a value, or the problem with it.
func (f field) toNumber(val any) (n uint64, problem string) {
	switch v := reflect.ValueOf(val); v.Kind() {
	case reflect.Bool:
		if v.Bool() {
			n = 1
		}
		return n, ""
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if v.Int() < 0 {
			return 0, fmt.Sprintf("%d is negative", v.Int())
		}
		return uint64(v.Int()), ""
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return v.Uint(), ""
	case reflect.String:
		for n, name := range f.names {
			if name == v.String() {
				return n, ""
			}
		}
		if f.names == nil {
			return 0, fmt.Sprintf("%q is no number", val)
		}
		return 0, fmt.Sprintf("%q is unknown: %s", val, f.spellNames())
	}
	return 0, fmt.Sprintf("%T is no number", val)
}

// spellNames lists what an enumeration accepts.
func (f field) spellNames() string {
	var all []string
	for _, n := range slices.Sorted(maps.Keys(f.names)) {
		all = append(all, fmt.Sprintf("%d %s", n, f.names[n]))
	}
	return "give a number, or one of: " + strings.Join(all, ", ")
}

// toBytes returns the bytes of a slice or an array.
func toBytes(val any) ([]byte, bool) {
	v := reflect.ValueOf(val)
	if k := v.Kind(); k != reflect.Slice && k != reflect.Array || v.Type().Elem().Kind() != reflect.Uint8 {
		return nil, false
	}
	b := make([]byte, v.Len())
	for i := range b { // the type of an element may be another than byte
		b[i] = byte(v.Index(i).Uint())
	}
	return b, true
}

// given are values with their table, for the rules.
type given struct {
	table  table
	values Values
}

// num returns the number in a field, 0 if it is not given or is none.
func (g given) num(name string) uint64 {
	f, _ := g.table.find(name)
	n, _ := f.toNumber(g.values[name])
	return n
}

func (g given) has(name string) bool { return g.values[name] != nil }

// len returns the length of a string, of bytes or of a slice.
func (g given) len(name string) uint64 {
	switch v := reflect.ValueOf(g.values[name]); v.Kind() {
	case reflect.String, reflect.Slice, reflect.Array:
		return uint64(v.Len())
	}
	return 0
}

// texts returns a slice of strings.
func (g given) texts(name string) []string {
	s, _ := g.values[name].([]string)
	return s
}

// hasQueue reports whether a QP has a queue with memory of its own.
func (g given) hasQueue() bool { return g.num("no_sq") == 0 || g.num("rq_type") == rqRegular }

// inner returns a nested structure.
func (g given) inner(name string) given {
	f, _ := g.table.find(name)
	v, _ := g.values[name].(Values)
	t, _ := lookup(f.of)
	return given{t, v}
}

// expand puts the values of fields in the places {name} of a text: a name, a number, or how long the value is.
func (g given) expand(says string) string {
	for _, f := range g.table.fields {
		place := "{" + f.name + "}"
		if !strings.Contains(says, place) {
			continue
		}
		n := g.num(f.name)
		value := fmt.Sprint(n)
		switch {
		case f.kind == octets || f.kind == list:
			value = fmt.Sprint(g.len(f.name))
		case f.names[n] != "":
			value = f.names[n]
		case f.unit == unitAddress || f.unit == unitAccess:
			value = fmt.Sprintf("%#x", n)
		}
		says = strings.ReplaceAll(says, place, value)
	}
	return says
}
