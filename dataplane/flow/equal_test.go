package flow_test

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/flowtally/flowtally/dataplane/flow"
)

// TestEqualLooksAtEveryField changes each word and number of a match that has every clause.
func TestEqualLooksAtEveryField(t *testing.T) {
	whole := func() *flow.Match {
		m := flow.Match{VLAN: make([]flow.VLAN, 1)}
		for v, i := reflect.ValueOf(&m).Elem(), 0; i < v.NumField(); i++ {
			if f := v.Field(i); f.Kind() == reflect.Pointer {
				f.Set(reflect.New(f.Type().Elem()))
			}
		}
		m.VXLAN.Inner, m.GRE.Inner, m.IPIP.Inner = new(flow.Match), new(flow.Match), new(flow.Match)
		m.Geneve.Inner, m.GTPU.Inner, m.MPLSUDP.Inner = new(flow.Match), new(flow.Match), new(flow.Match)
		return &m
	}
	n := 0
	var change func(v reflect.Value, path string, m *flow.Match)
	change = func(v reflect.Value, path string, m *flow.Match) {
		old := reflect.New(v.Type()).Elem()
		old.Set(v)
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				change(v.Field(i), path+"."+v.Type().Field(i).Name, m)
			}
			return
		case reflect.Array:
			for i := range v.Len() {
				change(v.Index(i), path, m)
			}
			return
		case reflect.Slice:
			if v.Len() > 0 {
				change(v.Index(0), path, m)
				v.SetZero()
			} else {
				v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			}
		case reflect.Pointer:
			if !v.IsNil() {
				change(v.Elem(), path, m)
				v.SetZero()
			} else {
				v.Set(reflect.New(v.Type().Elem()))
			}
		case reflect.Bool:
			v.SetBool(!v.Bool())
		default:
			v.SetUint(v.Uint() + 1)
		}
		if n++; m.Equal(*whole()) || whole().Equal(*m) {
			t.Errorf("a change of %s is not seen", path)
		}
		v.Set(old)
	}
	m := whole()
	change(reflect.ValueOf(m).Elem(), "match", m)
	if !m.Equal(*whole()) || n < 80 {
		t.Errorf("%d changes; equal in the end: %t", n, m.Equal(*whole()))
	}
}

func TestEqualMatchesAreEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, other := drawMatch(t), drawMatch(t)
		if !m.Equal(m.Clone()) {
			t.Fatalf("%s is not equal to its clone", m)
		}
		if written := drawAsWritten(t); !written.Equal(flow.Canonical(written)) || written.String() != flow.Canonical(written).String() {
			t.Fatalf("%s is not equal to its canonical form", written)
		}
		if m.Equal(other) != reflect.DeepEqual(m, other) {
			t.Fatalf("%s equals %s: %t", m, other, m.Equal(other))
		}
	})
}
