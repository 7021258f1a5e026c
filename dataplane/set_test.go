package dataplane_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/flow"
)

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func TestValidateReportsEachMistakeInSets(t *testing.T) {
	many := make([]dataplane.Set, dataplane.MostSets+1)
	for i := range many {
		many[i].Name = fmt.Sprint("s", i)
	}
	huge := make([]netip.Prefix, dataplane.MostElements+1)
	for i := range huge {
		huge[i] = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
	}
	most := huge[:dataplane.MostElements]
	for _, c := range []struct {
		name string
		sets []dataplane.Set
		want []string // parts of the error
	}{
		{"none", nil, nil},
		{"empty", []dataplane.Set{{Name: "a"}}, nil},
		{"two", []dataplane.Set{{Name: "a", Elements: prefixes("10.0.0.0/8", "::/0", "10.1.0.0/16")}, {Name: "b", Elements: prefixes("::ffff:10.0.0.0/104")}}, nil},
		{"no name", []dataplane.Set{{}}, []string{`set ""`, "no name"}},
		{"a name of a flow", []dataplane.Set{{Name: "a/b"}}, []string{`set "a/b"`, "letters, digits"}},
		{"twice", []dataplane.Set{{Name: "a"}, {Name: "a"}}, []string{`set "a": defined twice`, "rename one"}},
		{"no prefix", []dataplane.Set{{Name: "a", Elements: make([]netip.Prefix, 1)}}, []string{`set "a"`, "is no prefix"}},
		{"bits behind a prefix", []dataplane.Set{{Name: "a", Elements: prefixes("10.0.0.1/8")}}, []string{`set "a"`, "10.0.0.1/8", "did you mean 10.0.0.0/8?"}},
		{"too many", many, []string{"65 of them: at most 64"}},
		{"many elements", []dataplane.Set{{Name: "a", Elements: most}}, nil},
		{"too many elements", []dataplane.Set{{Name: "a", Elements: huge}}, []string{`set "a": 1048577 elements`}},
		{"too many together", []dataplane.Set{{Name: "a", Elements: most}, {Name: "b", Elements: most}, {Name: "c", Elements: most}, {Name: "d", Elements: most}, {Name: "e", Elements: prefixes("::/0")}},
			[]string{"4194305 elements together"}},
	} {
		err := dataplane.Config{Backend: "sim", Sets: c.sets}.Validate()
		if (err != nil) != (len(c.want) > 0) || err != nil && !errors.Is(err, dataplane.ErrInvalid) {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", c.name, err, part)
			}
		}
	}
}

func TestAFlowNamesASetOfTheConfiguration(t *testing.T) {
	cfg := dataplane.Config{Backend: "sim", Sets: []dataplane.Set{{Name: "blocklist"}, {Name: "allow"}}}
	for _, c := range []struct {
		match string
		want  []string
	}{
		{"ipv4 src @blocklist dst != @allow", nil},
		{"ipv4 src @blockist", []string{`flow "f"`, "ipv4.src", "no set @blockist", "did you mean @blocklist?"}},
		{"gre inner ipv6 dst @x", []string{"gre.inner.ipv6.dst", "no set @x", "define it under sets"}},
	} {
		cfg.Flows = []flow.Flow{flow.MustParse("f", c.match)}
		err := cfg.Validate()
		if (err != nil) != (len(c.want) > 0) || err != nil && !errors.Is(err, dataplane.ErrInvalid) {
			t.Errorf("%s: %v", c.match, err)
			continue
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", c.match, err, part)
			}
		}
	}
}
