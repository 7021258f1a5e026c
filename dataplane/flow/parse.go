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

// fields is a clause whose fields are being read, and where they go.
type fields struct {
	clause *clause // nil between clauses
	match  *Match
	tag    int    // among VLAN
	path   string // the way to the clause: "vlan[0]", "vxlan.inner.tcp"
}

// match reads clauses up to the end of the words: an inner match is the last
// thing in a text. path is the way to m: "" or "vxlan.inner.".
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

// clause opens the clause whose word was read last.
func (p *parser) clause(c *clause, path string, m *Match, inside bool) fields {
	index := p.at - 1
	open := fields{clause: c, match: m}
	why, fix := c.refused(m, inside)
	if why != "" {
		p.fail(index, why, fix)
		open.match = new(Match) // its fields are still read, for their own mistakes
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

	if len(c.fields) == 0 {
		open.clause = nil
	}
	return open
}

// inner reads the match behind the word "inner", which was read last.
func (p *parser) inner(path string, open fields, inside bool) {
	index := p.at - 1
	if inside || open.clause == nil || open.clause.inner == nil {
		p.fail(index, `"inner" follows the fields of vxlan or gre, once`, "write the clause as: vxlan vni 5 inner ipv4")
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

// unknown reports the word that was read last, and goes on with the clause that it most likely stands for.
func (p *parser) unknown(path string, open fields) fields {
	index := p.at - 1
	text := p.words[index].text
	value, ok := p.nextValue()
	if ok {
		p.at++ // most likely the word's value
	}
	message, suggestion := unknown(text, value, open.clause)
	p.fail(index, message, suggestion)

	lower := strings.ToLower(text)
	if protocols[lower] != 0 || etherTypes[lower] != 0 {
		p.skipFields() // of a protocol that has none here
		return open
	}
	meant := clauseNamed(cmp.Or(synonyms[lower], spelling.Nearest(text, Clauses())))
	if meant == nil {
		return open
	}
	open = fields{clause: meant, match: new(Match), path: fmt.Sprintf("%s%s?%d", path, meant.name, index)}
	meant.add(open.match)
	return open
}

// nextValue returns the next word, if it can be a value.
func (p *parser) nextValue() (value string, ok bool) {
	if p.at == len(p.words) || keyword(p.words[p.at].text) {
		return "", false
	}
	return p.words[p.at].text, true
}

// field reads the value that follows the word of a field, which was read last.
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
	if keyword(value) && !p.words[p.at].value && !(f.isFragment() && value == wordAny) {
		p.fail(p.at, fmt.Sprintf("expected %s after %q", f.expects(), f.name), suggestion)
		return
	}
	if p.given(open.path, f.name) {
		p.fail(index, "given twice", "leave one out")
	}
	p.spots = append(p.spots, spot{open.path, f.name, p.at})

	at := p.at
	p.at++
	var bad *valueError
	if err := f.parse(f.ref(open.match, open.tag), value); !errors.As(err, &bad) {
		return
	}
	if bad.fix != "" {
		suggestion = bad.fix
	} else if suggestion == "" {
		suggestion = p.foreignValue(f, value)
	}
	why := strings.TrimPrefix(bad.why, quoted(value)+" ") // the error names the word itself
	p.fail(at, fmt.Sprintf("%s; expected %s after %q", why, f.expects(), f.name), suggestion)
}

// foreignValue returns the suggestion for a value that the field f does not take, and leaves behind the words that
// belong to it: the operand of an operator, the rest of a list.
func (p *parser) foreignValue(f *field, value string) string {
	next, _ := p.nextValue()
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
