package flow

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

// ParseMatch reads the text form of a match (see the package comment). Every mistake is reported at
// once; the error is a ParseErrors. An accepted match validates, and String writes it in canonical
// form.
func ParseMatch(text string) (Match, error) {
	return parse(split(text), len(text))
}

// Word is one word of a match that was not written as text.
type Word struct {
	Text string
	// Value says that the word is the value of a field and nothing else,
	// whatever it looks like.
	Value bool
}

// ParseWords reads a match that is already split into words, for a form of another syntax (the YAML
// mapping of package configs). Index in the errors is the index of the word; Offset is its offset
// in the words joined by single spaces.
func ParseWords(words []Word) (Match, error) {
	placed := make([]word, len(words))
	at := 0
	for i, w := range words {
		placed[i] = word{w.Text, at, w.Value}
		at += len(w.Text) + 1
	}
	return parse(placed, max(0, at-1))
}

// word is one word of the text and where it stands.
type word struct {
	text   string
	offset int
	value  bool
}

// mostErrors bounds the report on a text that is far from a match.
const mostErrors = 20

type parser struct {
	words []word
	end   int // length of the text
	at    int // the next word
	errs  ParseErrors
	spots []spot
}

// spot is the word of a clause, or of a field of it.
type spot struct {
	clause, field string // field is empty for the clause itself
	index         int    // of the word
}

func parse(words []word, end int) (Match, error) {
	p := &parser{words: words, end: end, spots: make([]spot, 0, 8)}
	var m Match
	if len(words) == 0 {
		p.fail(0, "the match is empty: expected a protocol ("+oneOf(Clauses())+")", `write "any" to match every packet`)
	}
	p.match("", &m, false)
	p.check(&m)
	if len(p.errs) > 0 {
		slices.SortStableFunc(p.errs, func(a, b *ParseError) int { return a.Index - b.Index })
		return Match{}, p.errs[:min(len(p.errs), mostErrors)]
	}
	return m, nil
}

// check gives the rules of Validate the place of the word that breaks them.
func (p *parser) check(m *Match) {
	for _, broken := range m.check("", false) {
		p.fail(p.wordOf(broken.Field), broken.Cause, broken.Fix)
	}
}

// wordOf returns the index of the word at a field path, such as "vlan[0].id", and 0 where no word is.
func (p *parser) wordOf(path string) int {
	for _, s := range slices.Backward(p.spots) {
		if s.clause == path && s.field == "" || s.clause+"."+s.field == path {
			return s.index
		}
	}
	return 0
}

// given reports whether a field of a clause was read already.
func (p *parser) given(clause, field string) bool {
	return slices.ContainsFunc(p.spots, func(s spot) bool { return s.clause == clause && s.field == field })
}

func (p *parser) fail(index int, message, suggestion string) {
	e := &ParseError{Index: index, Offset: p.end, Message: message, Suggestion: suggestion}
	if index < len(p.words) {
		e.Offset, e.Word = p.words[index].offset, p.words[index].text
	}
	p.errs = append(p.errs, e)
}

// match reads clauses up to the end of the words: an inner match is the last
// thing in a text. path is the way to m: "" or "vxlan.inner.".
func (p *parser) match(path string, m *Match, inside bool) {
	start := p.at
	var open *clause    // the clause whose fields are being read
	target, tag := m, 0 // where they go
	name := ""          // the way to them
	for p.at < len(p.words) && len(p.errs) < mostErrors {
		index, text := p.at, p.words[p.at].text
		p.at++
		next := clauseNamed(text)
		switch {
		case next != nil:
			open, target, tag = next, m, 0
			if why, fix := next.refused(m, inside); why != "" {
				p.fail(index, why, fix)
				target = new(Match) // its fields are still read, for their own mistakes
			}
			next.add(target)
			name = path + next.name
			if next.name == "vlan" {
				tag = len(target.VLAN) - 1
				name = fmt.Sprintf("%s[%d]", name, tag)
			}
			if target != m {
				name += "?"
			}
			p.spots = append(p.spots, spot{name, "", index})
			if len(next.fields) == 0 {
				open = nil
			}
		case text == wordAny:
			if index != start || p.at != len(p.words) {
				p.fail(index, `"any" stands alone: it asks for nothing`, "leave it out")
			}
		case text == wordInner:
			if inside || open == nil || open.inner == nil {
				p.fail(index, `"inner" follows the fields of vxlan or gre, once`, "write the clause as: vxlan vni 5 inner ipv4")
				p.match(fmt.Sprintf("%sinner?%d.", path, index), new(Match), inside)
				continue
			}
			if p.at == len(p.words) {
				p.fail(p.at, `the match ends after "inner": expected a protocol`, `write "inner any" for any inner packet`)
			}
			*open.inner(target) = new(Match)
			p.spots = append(p.spots, spot{name, wordInner, index})
			p.match(name+".inner.", *open.inner(target), true)
		case open != nil && open.field(text) != nil:
			p.field(name, open.field(text), index, target, tag)
		default:
			p.fail(index, "", "")
			value := ""
			if p.at < len(p.words) && !keyword(p.words[p.at].text) {
				value = p.words[p.at].text // most likely
				p.at++
			}
			e := p.errs[len(p.errs)-1]
			e.Message, e.Suggestion = unknown(text, value, open)
			if lower := strings.ToLower(text); protocols[lower] != 0 || etherTypes[lower] != 0 {
				p.skipFields() // of a protocol that has none here
				continue
			}
			if meant := clauseNamed(cmp.Or(synonyms[strings.ToLower(text)], Nearest(text, Clauses()))); meant != nil {
				open, target, tag = meant, new(Match), 0 // the next words are read as its fields
				meant.add(target)
				name = fmt.Sprintf("%s%s?%d", path, meant.name, index)
			}
		}
	}
}

// field reads the value that follows a field's word. clause is the way to its clause.
func (p *parser) field(clause string, f *field, index int, m *Match, tag int) {
	if p.at == len(p.words) {
		p.fail(p.at, fmt.Sprintf("the match ends after %q: expected %s", f.name, f.expects()), "")
		return
	}
	value, suggestion := p.words[p.at].text, ""
	if (f.name == "proto" || f.name == "nexthdr" || f.name == "type") && clauseNamed(value) != nil {
		suggestion = fmt.Sprintf("leave %q out: the clause %q asks for its protocol itself", f.name, value)
	}
	if keyword(value) && !p.words[p.at].value && !(f.isFragment() && value == wordAny) {
		p.fail(p.at, fmt.Sprintf("expected %s after %q", f.expects(), f.name), suggestion)
		return
	}
	if p.given(clause, f.name) {
		p.fail(index, "given twice", "leave one out")
	}
	p.spots = append(p.spots, spot{clause, f.name, p.at})
	at := p.at
	p.at++
	err := f.parse(f.ref(m, tag), value)
	if err == nil {
		return
	}
	if bad := (*valueError)(nil); errors.As(err, &bad) {
		if bad.fix != "" {
			suggestion = bad.fix
		} else if suggestion == "" {
			suggestion = p.foreignValue(f, value)
		}
		why := strings.TrimPrefix(bad.why, quoted(value)+" ") // the error names the word itself
		p.fail(at, fmt.Sprintf("%s; expected %s after %q", why, f.expects(), f.name), suggestion)
	}
}

// foreignValue returns the suggestion for a value that the field f does not take, and leaves behind the words that
// belong to it: the operand of an operator, the rest of a list.
func (p *parser) foreignValue(f *field, value string) string {
	next := ""
	if p.at < len(p.words) && !keyword(p.words[p.at].text) {
		next = p.words[p.at].text
	}
	suggestion, taken := f.foreignValue(value, next)
	if taken {
		p.at++
	}
	if strings.HasPrefix(value, "{") && !strings.HasSuffix(value, "}") {
		for p.at < len(p.words) {
			p.at++
			if strings.HasSuffix(p.words[p.at-1].text, "}") {
				break
			}
		}
	}
	return suggestion
}

// skipFields goes on to the next clause.
func (p *parser) skipFields() {
	for p.at < len(p.words) && clauseNamed(p.words[p.at].text) == nil {
		p.at++
	}
}

// refused says why a clause cannot follow; empty when it can.
func (c *clause) refused(m *Match, inside bool) (why, fix string) {
	switch {
	case inside && c.inner != nil:
		return fmt.Sprintf("%s inside a tunnel: headers inside two tunnels are not looked at", c.name), "leave it out"
	case c.name == "vlan":
		if len(m.VLAN) >= maxTags {
			return "a third vlan clause: only the two outermost tags are looked at", "leave it out"
		}
	case c.has(m):
		fix = "join the two"
		if !inside {
			fix += `; headers inside a tunnel follow the word "inner"`
		}
		return fmt.Sprintf("a second %s clause", c.name), fix
	}
	return "", ""
}

// unknown explains a word that is neither a protocol nor a field of the open one. value is the next
// word; empty if it cannot be a value.
func unknown(text, value string, open *clause) (message, suggestion string) {
	known := Clauses()
	expected := "a protocol (" + oneOf(known) + ")"
	if open != nil {
		fields := Fields(open.name)
		expected = fmt.Sprintf("a field of %s (%s) or a protocol", open.name, oneOf(fields))
		known = append(fields, known...)
	}
	message = "expected " + expected
	if suggestion := elsewhere(text, value); suggestion != "" {
		return message, suggestion
	}
	if suggestion := foreignWord(text, value, open); suggestion != "" {
		return message, suggestion
	}
	var owners []string
	for i := range clauses {
		if clauses[i].field(text) != nil {
			owners = append(owners, clauses[i].name)
		}
	}
	switch {
	case open != nil && open.name == "vlan" && text == "none":
		return message, fmt.Sprintf("did you mean %q?", wordUntagged)
	case open != nil && open.name == "tcp" && slices.Contains(flagWords[:], text):
		return message, fmt.Sprintf("did you mean %q?", "flags "+text+"/"+text)
	case open != nil && (open.name == "tcp" || open.name == "udp") && (text == "src" || text == "dst"):
		return message, fmt.Sprintf("did you mean %q? addresses belong to ipv4 and ipv6", text[:1]+"port")
	case len(owners) > 0:
		addr, _, _ := strings.Cut(value, "/")
		if ip, err := netip.ParseAddr(addr); err == nil && ip.Is4() && slices.Contains(owners, "ipv4") {
			return message, fmt.Sprintf("did you mean %q?", "ipv4 "+text+" "+clip(value))
		} else if err == nil && slices.Contains(owners, "ipv6") {
			return message, fmt.Sprintf("did you mean %q?", "ipv6 "+text+" "+clip(value))
		}
		suggestion = fmt.Sprintf("%q is a field of %s: write that first, as %q", text, oneOf(owners), owners[0]+" "+text)
	default:
		suggestion = didYouMean(text, known)
	}
	return message, suggestion
}

// elsewhere translates words of tcpdump's filters; "" for any other text.
func elsewhere(text, value string) string {
	addr, _, _ := strings.Cut(value, "/")
	if ip, err := netip.ParseAddr(text); err == nil {
		value, addr, text = text, ip.String(), "host"
	}
	switch text {
	case "and", "&&":
		return "leave it out: a packet must match every clause"
	case "or", "||":
		return "a match has no alternatives: write a flow for each"
	case "port":
		return fmt.Sprintf("did you mean %q or %q, of tcp or udp?", strings.TrimSpace("dport "+clip(value)), strings.TrimSpace("sport "+clip(value)))
	case "host", "net":
		family := "ipv4"
		if ip, err := netip.ParseAddr(addr); err == nil && ip.Is6() {
			family = "ipv6"
		}
		return fmt.Sprintf("did you mean %q or %q?", strings.TrimSpace(family+" src "+clip(value)), strings.TrimSpace(family+" dst "+clip(value)))
	}
	return ""
}

// keyword says that a word is never a value (but for `frag any`).
func keyword(text string) bool { return keywords()[text] }

var keywords = sync.OnceValue(func() map[string]bool {
	words := map[string]bool{wordAny: true, wordInner: true}
	for i := range clauses {
		words[clauses[i].name] = true
		for j := range clauses[i].fields {
			words[clauses[i].fields[j].name] = true
		}
	}
	return words
})

// split cuts a text at ASCII white space.
func split(text string) []word {
	words := make([]word, 0, 8)
	start := -1
	for i := range len(text) + 1 {
		if i < len(text) && !isSpace(text[i]) {
			if start < 0 {
				start = i
			}
			continue
		}
		if start >= 0 {
			words = append(words, word{text: text[start:i], offset: start})
			start = -1
		}
	}
	return words
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }
