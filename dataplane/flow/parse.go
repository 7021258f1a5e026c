package flow

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/flowtally/flowtally/internal/spelling"
)

// ParseMatch parses the text form of a match, described in the package comment. The error is a [ParseErrors] with every
// mistake of the text. The returned match is valid.
func ParseMatch(text string) (Match, error) {
	return parse(split(text), len(text))
}

// Word is one word for [ParseWords].
type Word struct {
	Text string
	// Value marks the value of a field. The parser then never takes the word for a clause or a field, so that
	// "dport: udp" is reported as a bad port.
	Value bool
}

// ParseWords parses a match from words, for programs with a syntax of their own. Package configs uses it for YAML
// mappings. Index in its errors is the index of the word; Offset assumes single spaces between words.
func ParseWords(words []Word) (Match, error) {
	placed := make([]word, len(words))
	at := 0
	for i, w := range words {
		placed[i] = word{w.Text, at, w.Value}
		at += len(w.Text) + 1
	}
	return parse(placed, max(0, at-1))
}

// word is one word of the text, with its position in bytes.
type word struct {
	text   string
	offset int
	value  bool
}

// mostErrors limits the report on a text that is not a match at all.
const mostErrors = 20

type parser struct {
	words []word
	end   int // length of the text
	at    int // the next word
	errs  ParseErrors
	spots []spot
	icmp  []icmpName
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
	for _, n := range p.icmp {
		p.resolve(n)
	}
	m = m.canonical()
	p.check(&m)
	if len(p.errs) > 0 {
		slices.SortStableFunc(p.errs, func(a, b *ParseError) int { return a.Index - b.Index })
		return Match{}, p.errs[:min(len(p.errs), mostErrors)]
	}
	return m, nil
}

// check applies the rules of Validate and reports each broken one at the word to blame.
func (p *parser) check(m *Match) {
	for _, broken := range m.check("", false) {
		p.fail(p.wordOf(broken.Field), broken.Cause, broken.Fix)
	}
}

// wordOf returns the index of the word for a field path such as "vlan[0].id", or 0 if there is none.
func (p *parser) wordOf(path string) int {
	for _, s := range slices.Backward(p.spots) {
		if s.clause == path && s.field == "" || s.clause+"."+s.field == path {
			return s.index
		}
	}
	return 0
}

// given reports whether the text has had this field of the clause already.
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

// fields is the clause whose fields come next.
type fields struct {
	clause *clause // nil between clauses
	match  *Match  // receives the values
	tag    int     // index into VLAN
	path   string  // of the clause, for errors: "vlan[0]", "vxlan.inner.tcp"
}

// match parses clauses into m up to the end of the words, because an inner match ends the text. path leads to m: it is ""
// or "vxlan.inner.".
func (p *parser) match(path string, m *Match, inside bool) {
	start := p.at
	open := fields{match: m}
	for p.at < len(p.words) && len(p.errs) < mostErrors {
		index := p.at
		text := p.words[index].text
		p.at++

		next := clauseNamed(text)
		switch {
		case next != nil:
			open = p.clause(next, path, m, inside)
		case text == wordAny:
			if index != start || p.at != len(p.words) {
				p.fail(index, `"any" stands alone: it asks for nothing`, "leave it out")
			}
		case text == wordInner:
			p.inner(path, open, inside)
		case open.clause != nil && open.clause.field(text) != nil:
			p.field(open, open.clause.field(text))
		default:
			open = p.unknown(path, open)
		}
	}
}

// clause begins the clause c, whose word was just read.
func (p *parser) clause(c *clause, path string, m *Match, inside bool) fields {
	index := p.at - 1
	open := fields{clause: c, match: m}
	why, fix := c.misplaced(m, inside)
	if why != "" {
		p.fail(index, why, fix)
		open.match = new(Match) // parse its fields anyway, to report their mistakes, and throw them away
	}
	c.add(open.match)

	open.path = path + c.name
	if c.name == "vlan" {
		open.tag = len(open.match.VLAN) - 1
		open.path = fmt.Sprintf("%s[%d]", open.path, open.tag)
	}
	if why != "" {
		open.path += "?"
	}
	p.spots = append(p.spots, spot{open.path, "", index})

	if len(c.fields) == 0 && c.inner == nil {
		open.clause = nil
	}
	return open
}

// inner parses the match after the word "inner", which was just read.
func (p *parser) inner(path string, open fields, inside bool) {
	index := p.at - 1
	if inside || open.clause == nil || open.clause.inner == nil {
		p.fail(index, fmt.Sprintf(`"inner" follows the fields of %s, once`, oneOf(tunnels())), "write the clause as: vxlan vni 5 inner ipv4")
		p.match(fmt.Sprintf("%sinner?%d.", path, index), new(Match), inside)
		return
	}
	if p.at == len(p.words) {
		p.fail(p.at, `the match ends after "inner": expected a protocol`, `write "inner any" for any inner packet`)
	}

	m := new(Match)
	*open.clause.inner(open.match) = m
	p.spots = append(p.spots, spot{open.path, wordInner, index})
	p.match(open.path+".inner.", m, true)
}

// unknown reports the word just read. It continues with the clause that was probably meant, so that the fields after it do
// not cause further errors.
func (p *parser) unknown(path string, open fields) fields {
	index := p.at - 1
	text := p.words[index].text
	value, ok := p.nextValue()
	if ok {
		p.at++ // probably the value of the unknown word
	}
	message, suggestion := unknown(text, value, open.clause)
	p.fail(index, message, suggestion)

	lower := strings.ToLower(text)
	if isProtocol(lower) && synonyms[lower] == "" && clauseNamed(lower) == nil {
		p.skipFields() // this protocol has no clause, so none of its fields is known
		return open
	}
	meant := clauseIn(cmp.Or(synonyms[lower], spelling.Nearest(text, Clauses())))
	if meant == nil {
		return open
	}
	open = fields{clause: meant, match: new(Match), path: fmt.Sprintf("%s%s?%d", path, meant.name, index)}
	meant.add(open.match)
	return open
}

// nextValue returns the next word if it can be a value.
func (p *parser) nextValue() (value string, ok bool) {
	if p.at == len(p.words) || keyword(p.words[p.at].text) {
		return "", false
	}
	return p.words[p.at].text, true
}

// field parses the value of f, whose word was just read.
func (p *parser) field(open fields, f *field) {
	index := p.at - 1
	if p.at == len(p.words) {
		p.fail(p.at, fmt.Sprintf("the match ends after %q: expected %s", f.name, f.expects()), "")
		return
	}

	value := p.words[p.at].text
	suggestion := ""
	if (f.name == "proto" || f.name == "nexthdr" || f.name == "type") && clauseNamed(value) != nil {
		suggestion = fmt.Sprintf("leave %q out: the clause %q asks for its protocol itself", f.name, value)
	}
	if keyword(value) && !p.words[p.at].value && !f.hasWord(value) {
		p.fail(p.at, fmt.Sprintf("expected %s after %q", f.expects(), f.name), suggestion)
		return
	}
	if p.given(open.path, f.name) {
		p.fail(index, "given twice", "leave one out")
	}
	for _, other := range f.sharing() {
		if p.given(open.path, other) {
			p.fail(index, fmt.Sprintf("%q and %q have bits in common", f.name, other), "leave one out")
		}
	}
	p.spots = append(p.spots, spot{open.path, f.name, p.at})
	if p.isSet(f) {
		p.set(open, f)
		return
	}

	at := p.at
	p.at++
	if _, isName := icmpTypes[value]; isName && f.isICMPType() {
		if !strings.Contains(open.path, "?") { // else the match is thrown away
			w := p.words[at]
			p.icmp = append(p.icmp, icmpName{name: value, match: open.match, at: element{w.text, w.offset, at}})
		}
		return
	}
	var bad *valueError
	if err := f.parse(f.ref(open.match, open.tag), value); !errors.As(err, &bad) {
		return
	}
	if bad.fix != "" && !strings.HasPrefix(value, "{") {
		suggestion = bad.fix
	} else if suggestion == "" {
		suggestion = p.foreignValue(f, value)
	}
	why := strings.TrimPrefix(bad.why, quoted(value)+" ") // the error names the word itself
	p.fail(at, fmt.Sprintf("%s; expected %s after %q", why, f.expects(), f.name), suggestion)
}

// foreignValue returns a suggestion for a value in the syntax of another tool. It skips the other words of the value, such
// as the operand of ">" or the rest of a list.
func (p *parser) foreignValue(f *field, value string) string {
	next, _ := p.nextValue()
	suggestion, taken := f.foreignValue(value, next)
	if taken {
		p.at++
		value = next
	}
	if strings.Contains(value, "{") && !strings.HasSuffix(value, "}") {
		for p.at < len(p.words) {
			p.at++
			if strings.HasSuffix(p.words[p.at-1].text, "}") {
				break
			}
		}
	}
	return suggestion
}

// skipFields skips words up to the next clause.
func (p *parser) skipFields() {
	for p.at < len(p.words) && clauseNamed(p.words[p.at].text) == nil {
		p.at++
	}
}

// misplaced says why the clause cannot come here, or returns "" if it can.
func (c *clause) misplaced(m *Match, inside bool) (why, fix string) {
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

// keyword reports whether the word is a clause or a field, which no value can be, apart from those of [field.hasWord].
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

// split splits a text at ASCII white space. Unlike strings.Fields it keeps the offset of each word.
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
