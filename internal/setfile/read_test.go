package setfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// texts are elements as they are written.
func texts(list []netip.Prefix) string {
	out := make([]string, len(list))
	for i, p := range list {
		out[i] = Text(p)
	}
	return strings.Join(out, " ")
}

func TestEachFormHasItsElements(t *testing.T) {
	for _, c := range []struct {
		name, file, want string
		timed            int
	}{
		{"nothing", "", "", 0},
		{"comments", "# a list\n\n ; of nothing\n", "", 0},
		{"lines", "10.0.0.0/8\n192.0.2.1 # one\n  2001:db8::/32\t\r\n::1#two\n10.0.0.5-10.0.0.9", "10.0.0.0/8 192.0.2.1 2001:db8::/32 ::1 10.0.0.5 10.0.0.6/31 10.0.0.8/31", 0},
		{"a mark of the encoding", "\ufeff10.0.0.1\n", "10.0.0.1", 0},
		{"no end of the last line", "10.0.0.1", "10.0.0.1", 0},
		{"Spamhaus", "; Spamhaus DROP List 2026/11/29 - (c) 2026 The Spamhaus Project\n; Last-Modified: Sun, 29 Nov 2026\n1.10.16.0/20 ; SBL256894\n1.19.0.0/16;SBL434604\n", "1.10.16.0/20 1.19.0.0/16", 0},
		{"ranges", "0.0.0.0-255.255.255.255\n::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff\n10.0.0.7-10.0.0.7", "0.0.0.0/0 ::/0 10.0.0.7", 0},
		{"mapped IPv4 is IPv6", "::ffff:10.0.0.0/104\n", "::ffff:10.0.0.0/104", 0},
		{"nft list set", `table inet filter {
	set blocklist {
		type ipv4_addr
		flags interval,timeout
		counter
		timeout 1d
		size 65536
		comment "a { in a text }"
		elements = { 10.0.0.0/8 counter packets 3 bytes 180, 192.0.2.1,
			     192.0.2.7 timeout 1h expires 59m23s420ms, 198.51.100.1-198.51.100.2 comment "two, or so",
			     192.0.2.9 timeout never }
	}
}
`, "10.0.0.0/8 192.0.2.1 192.0.2.7 198.51.100.1 198.51.100.2 192.0.2.9", 1},
		{"two sets of nft", "table inet f {\nset a { type ipv4_addr; flags interval; elements = { 10.0.0.1 } }\nset b { type ipv6_addr; elements = { ::1, ::2 }; }\n}", "10.0.0.1 ::1 ::2", 0},
		{"a set without elements", "table ip f {\n\tset a {\n\t\ttypeof ip saddr\n\t}\n}\n", "", 0},
		{"a statement", "elements = { 10.0.0.1, 2001:db8::1, }", "10.0.0.1 2001:db8::1", 0},
		{"a statement without blanks", "elements={10.0.0.1,10.0.0.2}", "10.0.0.1 10.0.0.2", 0},
		{"braces", "# of a template\n{\n10.0.0.1, # one\n10.0.0.2\n}\n", "10.0.0.1 10.0.0.2", 0},
		{"a definition", "define blocklist = {\n  10.0.0.1, ::1\n}\n", "10.0.0.1 ::1", 0},
		{"ipset", `create blocklist hash:net family inet hashsize 1024 maxelem 65536 timeout 0 counters comment bucketsize 12 initval 0x7f3c5f0a
add blocklist 10.0.0.0/8 timeout 0 packets 0 bytes 0
add blocklist 192.0.2.1 timeout 300 packets 7 bytes 420 comment "seen # twice"
create blocklist6 hash:ip family inet6 hashsize 1024 maxelem 65536
add blocklist6 2001:db8::1
`, "10.0.0.0/8 192.0.2.1 2001:db8::1", 1},
		{"adds alone", "add a 10.0.0.1\nadd a 10.0.0.2 -exist\n", "10.0.0.1 10.0.0.2", 0},
	} {
		f, err := Read(strings.NewReader(c.file), 100)
		if err != nil || len(f.Mistakes) > 0 {
			t.Errorf("%s: %v, mistakes %+v", c.name, err, f)
			continue
		}
		if got := texts(f.Elements); got != c.want || f.Timed != c.timed {
			t.Errorf("%s: elements %s, %d of them with a timeout; want %s, %d", c.name, got, f.Timed, c.want, c.timed)
		}
	}
}

func TestMistakesNameTheirPlace(t *testing.T) {
	for _, c := range []struct {
		name, file string
		want       []string // "line:col", then parts of the text, split by |
	}{
		{"a word", "10.0.0.1\n10.0.0.x\n10.0.0.2", []string{`2:1|"10.0.0.x" is no address|a line has`}},
		{"a name", "localhost", []string{`1:1|"localhost" is no address`}},
		{"bits behind a prefix", "10.0.0.1/8", []string{`1:1|"10.0.0.1/8" has bits behind the first 8|did you mean 10.0.0.0/8?`}},
		{"bits behind a prefix of IPv6", "2001:db8::1/32", []string{`1:1|did you mean 2001:db8::/32?`}},
		{"a long prefix", "10.0.0.0/33\n::/129", []string{`1:1|"33" is no length|0 to 32`, `2:1|0 to 128`}},
		{"a length with a sign", "10.0.0.0/+8\n10.0.0.0/08\n10.0.0.0/", []string{"1:1|no length", "2:1|no length", "3:1|no length"}},
		{"a mask", "10.0.0.0/255.0.0.0", []string{`1:1|no length of a prefix`}},
		{"a zone", "fe80::1%eth0", []string{`1:1|is no address`}},
		{"zeros ahead", "010.0.0.1", []string{`1:1|is no address`}},
		{"backwards", "10.0.0.9-10.0.0.5", []string{`1:1|runs backwards|did you mean 10.0.0.5-10.0.0.9?`}},
		{"two versions", "10.0.0.1-::1", []string{`1:1|version`}},
		{"half a range", "10.0.0.1-", []string{`1:1|"" is no address`}},
		{"two on a line", "10.0.0.1 10.0.0.2 10.0.0.3\n10.0.0.4", []string{`1:10|"10.0.0.2" stands behind an element`}},
		{"quotes", `"10.0.0.1"`, []string{`1:1|is no address`}},
		{"a quote without an end", `"10.0.0.1`, []string{`1:1|has no end`}},
		{"a long word", strings.Repeat("1", 2000), []string{`1:1|has no end within 1024 bytes`}},
		{"bytes", "\x00\xff\x1b", []string{`1:1|is no address`}},
		{"more than there may be", "10.0.0.1\n10.0.0.2\n10.0.0.3\n10.0.0.4\n10.0.0.5\n", []string{`5:1|more than 4`}},
		{"a range of more than there may be", "10.0.0.1-10.0.0.254\n", []string{`1:1|more than 4`}},

		{"a chain", "table ip f {\n\tchain in {\n\t}\n}", []string{`2:2|"chain" is no part of a set|nft list set`}},
		{"a concatenation", "table ip f {\nset a {\ntype ipv4_addr . inet_service\n}\n}", []string{`3:16|"." was not expected`}},
		{"a set of ports", "set a {\ntype inet_service\nelements = { 22 }\n}", []string{`2:1|"inet_service" has more than addresses`}},
		{"concatenated elements", "elements = { 10.0.0.1 . 22 }", []string{`1:23|more than an address`}},
		{"a map", "elements = { 10.0.0.1 : drop }", []string{`1:23|a map`}},
		{"an unknown word", "{ 10.0.0.1 limit rate 5/second }", []string{`1:12|"limit" stands behind an element`}},
		{"two wrong elements", "{ 10.0.0.x, 10.0.0.1,\n 10.0.0.1/8 }", []string{`1:3|"10.0.0.x"`, `2:2|did you mean`}},
		{"two sets of one type", "table ip f {\nset a { type ipv4_addr; elements = { 10.0.0.1 } }\nset allow { type ipv4_addr; elements = { 10.0.0.2 } }\n}", []string{`3:40|two sets of one type|a file of each`}},
		{"no end", "elements = { 10.0.0.1,\n", []string{`2:1|have no }|cut`}},
		{"no end of a table", "table ip f {\nset a {\n}\n", []string{`4:1|ahead of a }|cut`}},
		{"too many braces", "{ 10.0.0.1 } }", []string{`1:14|"}" was not expected`}},
		{"a statement without elements", "elements\n", []string{`1:9|the end of the line was not expected`}},
		{"a value that is missing", "{ 10.0.0.1 timeout, 10.0.0.2 }", []string{`1:19|"timeout" has no value`}},

		{"ipset of ports", "create a hash:ip,port family inet\nadd a 10.0.0.1,tcp:22\n", []string{`1:8|more than addresses|hash:ip or hash:net`, `2:7|no address`}},
		{"ipset of nets with a mask", "create a hash:ip netmask 24\nadd a 10.0.0.0\n", []string{`1:18|a mask that their lines do not show`}},
		{"an exception", "create a hash:net\nadd a 10.0.0.0/8\nadd a 10.1.0.0/16 nomatch\n", []string{`3:19|exception`}},
		{"another set", "create a hash:net\nadd b 10.0.0.0/8\n", []string{`2:5|"b" is another set than "a"`}},
		{"two variables", "define BAD = { 10.0.0.0/8 }\ndefine ALLOW = { 192.0.2.0/24 }\n", []string{`2:16|two sets of one type|a file of each`}},
		{"two lists of elements", "elements = { ::1 }\nelements = { 10.0.0.1, ::2 }\n", []string{`2:12|two sets of one type`}},
		{"a variable and a set", "define BAD = { 10.0.0.1 }\ntable ip f {\nset a { type ipv4_addr; elements = { 10.0.0.2 } }\n}\n", []string{`3:36|two sets of one type`}},
		{"a length below 0", "10.0.0.0/-1\n", []string{`1:1|"-1" is no length of a prefix|write 0 to 32`}},
		{"two sets of one family", "create a hash:net\ncreate b hash:ip family inet\n", []string{`2:8|two sets of one family`}},
		{"an option that is not known", "create a hash:net reverse\n", []string{`1:19|"reverse" is no option`}},
		{"a family that is missing", "create a hash:net family\nadd a 10.0.0.1\n", []string{`1:25|"family" has no value`, `1:8|"" is no family`}},
		{"a family of nobody", "create a hash:net family inet5\nadd a 10.0.0.1\n", []string{`1:8|"inet5" is no family of addresses|inet or inet6`}},
		{"no name", "add\n10.0.0.1\n", []string{`1:4|no name`}},
		{"no element", "add a\n10.0.0.1\n", []string{`1:6|no element`}},
	} {
		f, err := Read(strings.NewReader(c.file), 4)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if len(f.Mistakes) != len(c.want) {
			t.Errorf("%s: %d mistakes, want %d: %+v", c.name, len(f.Mistakes), len(c.want), f.Mistakes)
			continue
		}
		for i, m := range f.Mistakes {
			parts := strings.Split(c.want[i], "|")
			if at := fmt.Sprintf("%d:%d", m.Line, m.Col); at != parts[0] {
				t.Errorf("%s: mistake %d is at %s, want %s: %+v", c.name, i, at, parts[0], m)
			}
			for _, part := range parts[1:] {
				if !strings.Contains(m.Msg+"; "+m.Fix, part) {
					t.Errorf("%s: %q; %q does not say %q", c.name, m.Msg, m.Fix, part)
				}
			}
		}
	}
}

// A file that is no file of a set is not read to its end: each of its lines is a mistake.
func TestReadingEndsAfterSomeMistakes(t *testing.T) {
	lines := strings.Repeat("wrong\n", 1<<16)
	r := strings.NewReader(lines)
	f, err := Read(r, 100)
	if err != nil || len(f.Mistakes) != mostMistakes || len(f.Elements) > 0 {
		t.Errorf("%v, %d mistakes", err, len(f.Mistakes))
	}
	if r.Len() < len(lines)/2 {
		t.Errorf("%d of %d bytes were read", len(lines)-r.Len(), len(lines))
	}
}

func TestAnErrorOfReadingIsReturned(t *testing.T) {
	broken := errors.New("broken")
	for _, text := range []string{"", "10.0.0.1\n", "10.0", "{ 10.0.0.1", "# 10", `"`} {
		f, err := Read(io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken)), 100)
		if !errors.Is(err, broken) || f != nil {
			t.Errorf("%q: %+v, %v", text, f, err)
		}
	}
}

func TestMergeLeavesOutWhatOthersContain(t *testing.T) {
	for _, c := range []struct {
		list, want string
		left       int
		shown      string
	}{
		{"", "", 0, ""},
		{"10.0.0.0/9 10.128.0.0/9", "10.0.0.0/9 10.128.0.0/9", 0, ""}, // neighbours stay: each can be removed
		{"::/0 192.0.2.1 10.1.0.0/16 10.0.0.0/8 10.0.0.0/8 ::1", "10.0.0.0/8 192.0.2.1 ::/0", 3, "10.0.0.0/8 in 10.0.0.0/8, 10.1.0.0/16 in 10.0.0.0/8, ::1 in ::/0"},
		{"0.0.0.0/0 1.0.0.0 2.0.0.0 3.0.0.0 ::2", "0.0.0.0/0 ::2", 3, "1.0.0.0 in 0.0.0.0/0, 2.0.0.0 in 0.0.0.0/0, 3.0.0.0 in 0.0.0.0/0"},
		{"1.1.1.1 1.1.1.1 1.1.1.1 1.1.1.1 1.1.1.1 1.1.1.1", "1.1.1.1", 5, "1.1.1.1 in 1.1.1.1, 1.1.1.1 in 1.1.1.1, 1.1.1.1 in 1.1.1.1"},
	} {
		f, err := Read(strings.NewReader(strings.ReplaceAll(c.list, " ", "\n")), 100)
		if err != nil {
			t.Fatal(err)
		}
		merged, left, shown := Merge(f.Elements)
		var pairs []string
		for _, s := range shown {
			pairs = append(pairs, Text(s.Element)+" in "+Text(s.In))
		}
		if got := texts(merged); got != c.want || left != c.left || strings.Join(pairs, ", ") != c.shown {
			t.Errorf("%s: %s, left %d out: %s; want %s, %d: %s", c.list, got, left, strings.Join(pairs, ", "), c.want, c.left, c.shown)
		}
	}
}

// lastOf returns the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := range b {
		b[i] |= 0xff >> min(8, max(0, p.Bits()-8*i))
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// member looks an address up in what Merge returns.
func member(merged []netip.Prefix, a netip.Addr) bool {
	at, found := slices.BinarySearchFunc(merged, a, func(p netip.Prefix, a netip.Addr) int { return p.Addr().Compare(a) })
	return found || at > 0 && merged[at-1].Contains(a)
}

// addresses are those at and beside the ends of each element.
func addresses(list []netip.Prefix) (out []netip.Addr) {
	for _, p := range list {
		for _, a := range []netip.Addr{p.Addr(), lastOf(p)} {
			out = append(out, a)
			for _, beside := range []netip.Addr{a.Prev(), a.Next()} {
				if beside.IsValid() {
					out = append(out, beside)
				}
			}
		}
	}
	return out
}

func drawAddr(t *rapid.T, wide bool) netip.Addr {
	b := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 2, 127, 128, 255}), 4, 4).Draw(t, "v4")
	if wide {
		b = append(b, rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 128, 255}), 12, 12).Draw(t, "v6")...)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// The prefixes of a range have its addresses and no others, and no fewer prefixes do.
func TestARangeBecomesTheFewestPrefixes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wide := rapid.Bool().Draw(t, "wide")
		first, last := drawAddr(t, wide), drawAddr(t, wide)
		if last.Less(first) {
			first, last = last, first
		}
		list := appendRange(nil, first, last)
		at := first
		for i, p := range list {
			if p != p.Masked() || p.Addr() != at {
				t.Fatalf("%s-%s: %v: prefix %d does not begin at %s", first, last, list, i, at)
			}
			if i > 0 { // two halves of a prefix would be one
				if before := list[i-1]; before.Bits() == p.Bits() && netip.PrefixFrom(p.Addr(), p.Bits()-1).Masked().Contains(before.Addr()) {
					t.Fatalf("%s-%s: %v: prefixes %d and %d are one", first, last, list, i-1, i)
				}
			}
			at = lastOf(p).Next()
		}
		if lastOf(list[len(list)-1]) != last {
			t.Fatalf("%s-%s: %v ends elsewhere", first, last, list)
		}
	})
}

// What Merge leaves has the addresses of before, and its prefixes are apart.
func TestMergedSetHasTheSameAddresses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list []netip.Prefix
		for range rapid.IntRange(0, 12).Draw(t, "elements") {
			a := drawAddr(t, rapid.Bool().Draw(t, "wide"))
			p, _ := a.Prefix(rapid.IntRange(0, a.BitLen()).Draw(t, "bits"))
			list = append(list, p)
		}
		merged, left, _ := Merge(slices.Clone(list))
		if len(merged)+left != len(list) {
			t.Fatalf("%v becomes %v, and %d were left out", list, merged, left)
		}
		for i := 1; i < len(merged); i++ {
			if merged[i-1].Overlaps(merged[i]) {
				t.Fatalf("%v becomes %v, of which two overlap", list, merged)
			}
		}
		for _, a := range append(addresses(list), drawAddr(t, false), drawAddr(t, true)) {
			want := slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
			if member(merged, a) != want {
				t.Fatalf("%v becomes %v: %s is in the first: %v", list, merged, a, want)
			}
		}
	})
}

// linesOf reads a file of lines without the lexer. ok is false if a line is no element.
func linesOf(data string) (ranges [][2]netip.Addr, ok bool) {
	for line := range strings.SplitSeq(strings.TrimPrefix(data, "\ufeff"), "\n") {
		if at := strings.IndexAny(line, "#;"); at >= 0 {
			line = line[:at]
		}
		line = strings.Trim(line, " \t\r\v\f")
		if line == "" {
			continue
		}
		first, last, isRange := strings.Cut(line, "-")
		if !isRange {
			last = first
		}
		if p, err := netip.ParsePrefix(line); err == nil {
			ranges = append(ranges, [2]netip.Addr{p.Masked().Addr(), lastOf(p.Masked())})
			continue
		}
		a, err := netip.ParseAddr(first)
		b, bad := netip.ParseAddr(last)
		if err != nil || bad != nil {
			return nil, false
		}
		ranges = append(ranges, [2]netip.Addr{a, b})
	}
	return ranges, true
}

// No input panics. What is read from a file, written in each of the forms, and read again is equal. An address is in the merged
// set if and only if it is in a line.
func FuzzRead(f *testing.F) {
	for _, text := range []string{
		"10.0.0.0/8\n10.1.0.0/16 # in it\n2001:db8::/32 ; SBL1\n10.0.0.5-10.0.0.9\n", "\ufeff::1\r\n\n;x\n::-::ffff\n",
		"table inet f { set a { type ipv4_addr; flags interval; elements = { 10.0.0.1 timeout 1h expires 5s, 10.0.0.2-10.0.0.9 comment \"x\" } } }",
		"elements = { ::1, ::2 counter packets 1 bytes 2, }", "{\n1.2.3.4\n}", "define a={1.2.3.4}",
		"create a hash:net family inet6 timeout 3\nadd a ::/1 timeout 0\nadd a 8000::/1 nomatch\n", "add a 1.2.3.4 comment \"\n", "fe80::1%1", "1.2.3.4/08",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		const most = 1000
		file, err := Read(bytes.NewReader(data), most)
		if err != nil {
			t.Fatal(err)
		}
		lines := 1 + bytes.Count(data, []byte("\n"))
		for _, m := range file.Mistakes {
			if m.Line < 1 || m.Line > lines || m.Col < 1 || m.Width < 1 || m.Msg == "" {
				t.Fatalf("%q: mistake %+v", data, m)
			}
		}
		if len(file.Mistakes) > 0 {
			return
		}

		var plain, ipset strings.Builder
		nft := "elements = {"
		for _, p := range file.Elements {
			if p != p.Masked() || p.Addr().Zone() != "" {
				t.Fatalf("%q has the element %s", data, p)
			}
			plain.WriteString(Text(p) + "\n")
			ipset.WriteString("add x " + Text(p) + "\n")
			nft += " " + Text(p) + ","
		}
		for _, text := range []string{plain.String(), ipset.String(), nft + " }"} {
			again, err := Read(strings.NewReader(text), most)
			if err != nil || len(again.Mistakes) > 0 || !slices.Equal(again.Elements, file.Elements) {
				t.Fatalf("%q has the elements %v, written\n%s\nand read as %+v, %v", data, file.Elements, text, again, err)
			}
		}

		merged, _, _ := Merge(slices.Clone(file.Elements))
		ranges, plainLines := linesOf(string(data))
		for _, a := range addresses(file.Elements) {
			want := slices.ContainsFunc(file.Elements, func(p netip.Prefix) bool { return p.Contains(a) })
			inLines := slices.ContainsFunc(ranges, func(r [2]netip.Addr) bool {
				return r[0].BitLen() == a.BitLen() && !a.Less(r[0]) && !r[1].Less(a)
			})
			if member(merged, a) != want || plainLines && inLines != want {
				t.Fatalf("%q: %s is an element of it: %v, merged: %v, in its lines: %v", data, a, want, member(merged, a), inLines)
			}
		}
	})
}

// BenchmarkRead reads a million elements of a blocklist: mostly addresses and /24 of IPv4.
func BenchmarkRead(b *testing.B) {
	const n = 1_000_000
	var lines, nft, v6 bytes.Buffer
	nft.WriteString("table inet f {\n\tset a {\n\t\ttype ipv4_addr\n\t\tflags interval\n\t\telements = { ")
	for i := range n {
		x := uint32(i) * 2654435761
		a := netip.AddrFrom4([4]byte{byte(x >> 24), byte(x >> 16), byte(x >> 8), byte(x)})
		p := netip.PrefixFrom(a, 32)
		if i%2 == 0 {
			p = netip.PrefixFrom(a, 24).Masked()
		}
		fmt.Fprintf(&lines, "%s\n", Text(p))
		fmt.Fprintf(&nft, "%s,\n\t\t\t     ", Text(p))
		fmt.Fprintf(&v6, "2001:db8:%x:%x::/64\n", x>>16, x&0xffff)
	}
	nft.WriteString("}\n\t}\n}\n")
	for _, c := range []struct {
		name string
		data []byte
	}{{"lines", lines.Bytes()}, {"nft", nft.Bytes()}, {"lines of IPv6", v6.Bytes()}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(c.data)))
			for b.Loop() {
				f, err := Read(bytes.NewReader(c.data), 1<<20)
				if err != nil || len(f.Mistakes) > 0 || len(f.Elements) != n {
					b.Fatalf("%v, %d elements, %v", err, len(f.Elements), f.Mistakes)
				}
				Merge(f.Elements)
			}
		})
	}
}
