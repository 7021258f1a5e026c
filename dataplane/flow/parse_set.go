package flow

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// notEqual excludes the values behind it.
const notEqual = "!="

// isSet reports whether the next word begins a set, names one, or is a range that the field itself cannot hold, also behind "!=".
func (p *parser) isSet(f *field) bool {
	text := p.words[p.at].text
	switch {
	case !f.hasChoices():
		return false
	case strings.HasPrefix(text, notEqual) || strings.HasPrefix(text, "{") || isNamedSet(text):
		return true
	case f.hasLists() && (strings.Contains(text, ",") || p.at+1 < len(p.words) && strings.HasPrefix(p.words[p.at+1].text, ",")):
		return true
	}
	return !f.isPort() && f.isRange(text)
}

// isNamedSet reports whether the text begins as the name of a set does.
func isNamedSet(text string) bool { return text != "" && text[0] == namedSet }

// hasLists reports whether a comma separates values of the field also without braces. In TCP flags it joins flags.
func (f *field) hasLists() bool {
	_, flags := f.ref(full, 0).(*Masked[TCPFlags])
	return f.hasChoices() && !flags
}

// isRange reports whether the text is first-last, both of which are values of the field.
func (f *field) isRange(text string) bool {
	first, last, ok := f.cutRange(text)
	return ok && f.hasRanges() && f.accepts(first) && f.accepts(last)
}

// cutRange splits first-last. A name of the field with a hyphen is no range.
func (f *field) cutRange(text string) (first, last string, ok bool) {
	if f.isAddress() {
		return strings.Cut(text, "-")
	}
	if _, isName := f.names()[text]; isName {
		return "", "", false
	}
	return f.splitRange(text)
}

// element is the text of one value of a set, with its place.
type element struct {
	text   string
	offset int // in bytes
	index  int // of the word that it begins in
}

// set parses a set of values, the name of a set, or a single value behind "!=".
func (p *parser) set(open fields, f *field) {
	c := Choice{Clause: open.clause.name, Tag: open.tag, Field: f.name}
	s := &setReader{p: p, f: f, word: p.at}
	before := len(p.errs)
	var names []icmpName
	var elements []element
	switch isNot, ok := s.operator(); {
	case !ok:
	case isNamedSet(p.words[s.word].text[s.at:]):
		c.Not = isNot
		c.Set = s.name()
	default:
		c.Not = isNot
		elements = s.read()
	}
	p.at = s.word

	scratch := newFull()
	ref := f.ref(scratch, 0)
	for i, e := range elements {
		if isNamedSet(e.text) {
			p.failAt(e, "a named set stands alone, and not among values", s.alone(e, elements))
			continue
		}
		if _, isName := icmpTypes[e.text]; isName && f.isICMPType() {
			names = append(names, icmpName{name: e.text, match: open.match, at: e, set: true, value: len(c.Values)})
			c.Values = append(c.Values, Value{})
			continue
		}
		v, bad := f.parseValue(ref, e.text)
		if bad == nil {
			c.Values = append(c.Values, v)
			continue
		}
		suggestion := bad.fix
		if suggestion == "" {
			suggestion, _ = f.foreignValue(e.text, "")
		}
		why, isVerb := strings.CutPrefix(bad.why, quoted(e.text)+" ") // the error names the value itself
		switch {
		case len(elements) == 1:
		case isVerb:
			why = fmt.Sprintf("value %d of the set %s", i+1, why)
		default:
			why = fmt.Sprintf("value %d of the set: %s", i+1, why)
		}
		p.failAt(e, fmt.Sprintf("%s; expected %s after %q", why, f.expects(), f.name), suggestion)
		if len(p.errs) >= mostErrors {
			return
		}
	}
	// A field that is given twice keeps its first set: the places in names are those of one set.
	if len(p.errs) == before && open.match.choice(c.Clause, c.Tag, c.Field) == nil {
		open.match.Choices = append(open.match.Choices, c)
		if !strings.Contains(open.path, "?") { // else the match is thrown away
			p.icmp = append(p.icmp, names...)
		}
	}
}

// failAt reports a mistake at a part of a word. A set of a million values may have as many mistakes.
func (p *parser) failAt(e element, message, suggestion string) {
	if len(p.errs) >= mostErrors {
		return
	}
	p.errs = append(p.errs, &ParseError{Word: e.text, Offset: e.offset, Index: e.index, Message: message, Suggestion: suggestion})
}

// parseValue parses one value of a set. ref is a field of this kind, which parseValue overwrites.
func (f *field) parseValue(ref any, text string) (Value, *valueError) {
	if first, last, _ := f.cutRange(text); !f.isPort() && f.isRange(text) {
		v := Value{Value: f.number(ref, first), Last: f.number(ref, last)}
		switch {
		case strings.Contains(text, "/"):
			return Value{}, &valueError{"a range has no mask", "write first-last, or value/mask"}
		case v.Value.Compare(v.Last) > 0:
			return Value{}, &valueError{"the range runs backwards", fmt.Sprintf("did you mean %s-%s?", last, first)}
		case v.Last.isZero(): // 0-0
			v.Mask = whole(f.bits)
		}
		return f.shortest(v), nil
	}

	var bad *valueError
	if err := f.parse(ref, text); errors.As(err, &bad) {
		return Value{}, bad
	}
	if cause, fix := f.check(ref); cause != "" {
		return Value{}, &valueError{cause, fix}
	}
	v := loadValue(ref)
	if cause, fix := f.checkValue(v); cause != "" {
		return Value{}, &valueError{cause, fix}
	}
	return v, nil
}

// number returns the number of a text that the field accepts.
func (f *field) number(ref any, text string) Number {
	_ = f.parse(ref, text)
	return loadValue(ref).Value
}

// setReader splits the words of a set into its elements.
type setReader struct {
	p    *parser
	f    *field
	word int // the next word
	at   int // the next byte of it

	elements []element
	open     *element // the element being read
	comma    bool     // the last thing was a comma
}

// operator reads "!=" if it comes next. It reports a mistake, and ok is false, if no value follows.
func (s *setReader) operator() (isNot, ok bool) {
	words := s.p.words
	if !strings.HasPrefix(words[s.word].text, notEqual) {
		return false, true
	}
	if s.at = len(notEqual); s.at == len(words[s.word].text) {
		s.word, s.at = s.word+1, 0
	}
	if s.word == len(words) || s.isKeyword() {
		s.p.fail(s.word, fmt.Sprintf("expected %s after %q", s.f.expects(), notEqual), "")
		return true, false
	}
	return true, true
}

// name reads the name of a set. It reports a mistake if the field cannot have it.
func (s *setReader) name() string {
	w := s.p.words[s.word]
	e := element{w.text[s.at:], w.offset + s.at, s.word}
	s.word++
	name := e.text[1:]
	cause, fix := checkSetName(name)
	switch {
	case !s.f.takesNamedSets():
		s.p.failAt(e, fmt.Sprintf("%s; expected %s after %q", onlyAddresses, s.f.expects(), s.f.name), "write the values, as in "+s.f.name+" {a, b}")
	case strings.ContainsAny(name, ",{}"):
		s.p.failAt(e, "a field takes one named set, without braces", "put the elements of all into one set, or make a flow of each")
	case cause != "":
		s.p.failAt(e, cause, fix)
	}
	return name
}

// alone proposes what to write for a named set that stands among values.
func (s *setReader) alone(e element, elements []element) string {
	switch {
	case !s.f.takesNamedSets():
		return onlyAddresses
	case len(elements) == 1:
		return fmt.Sprintf("did you mean %q?", s.f.name+" "+clip(e.text))
	}
	return "add the values to the set, or make a flow of them"
}

// read returns the elements, and leaves word behind the set. It reports mistakes of the set itself.
func (s *setReader) read() []element {
	if strings.HasPrefix(s.p.words[s.word].text[s.at:], "{") {
		return s.braces()
	}
	return s.list()
}

// braces reads a set in braces.
func (s *setReader) braces() []element {
	words := s.p.words
	begin := element{"{", words[s.word].offset + s.at, s.word}
	if !s.closes() {
		s.p.failAt(begin, "the set has no end", "close it with }")
		s.word++
		s.skip()
		return nil
	}
	s.at++
	for ; s.word < len(words); s.word, s.at = s.word+1, 0 {
		text := words[s.word].text
		for ; s.at < len(text); s.at++ {
			switch c := text[s.at]; c {
			case '}':
				s.end()
				s.close(begin)
				return s.elements
			case ',':
				if s.open == nil && (len(s.elements) == 0 || s.comma) {
					s.p.failAt(element{",", words[s.word].offset + s.at, s.word}, "a value is missing before the comma", "leave the comma out")
				}
				s.end()
				s.comma = true
			case '{':
				s.p.failAt(begin, "the set has no end: another begins before it", "close it with }")
				s.skip()
				return nil
			default:
				if isSpace(c) {
					s.end()
				} else {
					s.add()
				}
			}
		}
		s.end()
	}
	return nil // not reached: the set closes
}

// isKeyword reports whether the next word is a clause or a field, and no value.
func (s *setReader) isKeyword() bool {
	w := s.p.words[s.word]
	return keyword(w.text) && !w.value && !s.f.hasWord(w.text)
}

// closes reports whether a "}" follows.
func (s *setReader) closes() bool {
	return slices.ContainsFunc(s.p.words[s.word:], func(w word) bool { return strings.Contains(w.text, "}") })
}

// close ends a set in braces at its "}".
func (s *setReader) close(begin element) {
	words := s.p.words
	rest := element{words[s.word].text[s.at+1:], words[s.word].offset + s.at + 1, s.word}
	if len(s.elements) == 0 {
		s.p.failAt(begin, "the set is empty", "put a value into it, or leave the field out")
	}
	if rest.text != "" {
		s.p.failAt(rest, "expected a blank behind the set", "")
	}
	s.word++
}

// skip moves to the next clause or field, where parsing can go on.
func (s *setReader) skip() {
	for s.word < len(s.p.words) && !keyword(s.p.words[s.word].text) {
		s.word++
	}
}

// list reads a value, or values with commas between them.
func (s *setReader) list() []element {
	words := s.p.words
	for {
		text := words[s.word].text
		for ; s.at < len(text); s.at++ {
			if text[s.at] != ',' || !s.f.hasLists() {
				s.add()
				continue
			}
			if s.open == nil && (len(s.elements) == 0 || s.comma) {
				s.p.failAt(element{",", words[s.word].offset + s.at, s.word}, "a value is missing before the comma", "leave the comma out")
			}
			s.end()
			s.comma = true
		}
		s.end()
		s.word, s.at = s.word+1, 0
		more := s.word < len(words) && (s.comma || s.f.hasLists() && strings.HasPrefix(words[s.word].text, ","))
		if more && s.comma && s.isKeyword() {
			more = false
		}
		if more {
			continue
		}
		if s.comma {
			s.p.fail(s.word, "a value is missing behind the comma", "leave the comma out")
		}
		return s.elements
	}
}

// add adds the next byte to the element being read.
func (s *setReader) add() {
	w := s.p.words[s.word]
	if s.open == nil {
		if len(s.elements) > 0 && !s.comma {
			s.p.failAt(element{w.text[s.at : s.at+1], w.offset + s.at, s.word}, "a comma separates the values of a set", "write it as {22, 80}")
		}
		s.open = &element{offset: w.offset + s.at, index: s.word}
		s.comma = false
	}
	from := s.open.offset - w.offset
	s.open.text = w.text[from : s.at+1]
}

// end ends the element being read.
func (s *setReader) end() {
	if s.open != nil {
		s.elements = append(s.elements, *s.open)
		s.open = nil
	}
}
