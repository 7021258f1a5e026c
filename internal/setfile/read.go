package setfile

import (
	"fmt"
	"io"
	"net/netip"
)

// mostMistakes ends the reading of a file. One that is no file of a set has a mistake on each line.
const mostMistakes = 20

// File is what a file of a set has.
type File struct {
	// Elements in the order of the file. They may overlap: see [Merge].
	Elements []netip.Prefix

	// Timed counts elements with a timeout, which no form but the tool's own keeps.
	Timed int

	// Mistakes in the order of the file. After the first few of them the rest of the file was not read.
	Mistakes []Mistake

	// Known says that the file begins with a word of nftables, or has a command of ipset ahead of its first mistake. Without it, a file
	// with mistakes and without elements may be anything.
	Known bool
}

// Mistake is one mistake in a file.
type Mistake struct {
	Line, Col, Width int // from 1, in bytes
	Msg, Fix         string
}

// Read reads the file of a set. More than most prefixes are a mistake; a range counts as its prefixes. The error is that of r.
func Read(r io.Reader, most int) (*File, error) {
	all := &reader{lexer: newLexer(r), most: most, file: new(File)}
	all.start()
	if all.lexer.err != nil {
		return nil, all.lexer.err
	}
	return all.file, nil
}

// reader reads one file.
type reader struct {
	lexer   *lexer
	most    int
	file    *File
	ahead   *token // given back
	stopped bool   // by mistakes

	ipset ipset
	nft   nft
}

// start tells the form of the file by its first word, and reads all of it.
func (r *reader) start() {
	if first := r.lexer.first(len("elements=")); isNFT(first) {
		r.file.Known = first[0] != '{' // JSON begins so, too
		r.readNFT()
	} else {
		r.readLines()
	}
}

// next returns the next token. A file with too many mistakes has ended.
func (r *reader) next() token {
	if r.stopped {
		return token{line: r.lexer.line, col: r.lexer.col}
	}
	if r.ahead != nil {
		t := *r.ahead
		r.ahead = nil
		return t
	}
	t := r.lexer.next()
	if t.kind == kindBroken {
		r.bad(t, fmt.Sprintf("%s has no end within %d bytes", quoted(string(t.text)), mostWord), "")
		r.stopped = true
		return token{line: t.line, col: t.col}
	}
	return t
}

// giveBack makes a token the next one again.
func (r *reader) giveBack(t token) { r.ahead = &t }

// value reads the value behind a word.
func (r *reader) value(of string) string {
	t := r.next()
	if t.kind != kindWord && t.kind != kindText {
		r.bad(t, quoted(of)+" has no value", "")
		r.giveBack(t)
		return ""
	}
	return string(t.text)
}

// bad reports a mistake at a token.
func (r *reader) bad(t token, msg, fix string) {
	if r.stopped {
		return
	}
	r.file.Mistakes = append(r.file.Mistakes, Mistake{Line: t.line, Col: t.col, Width: max(1, len(t.text)), Msg: msg, Fix: fix})
	r.stopped = len(r.file.Mistakes) == mostMistakes
}

// fatal reports a mistake after which the rest cannot be read.
func (r *reader) fatal(t token, msg, fix string) {
	r.bad(t, msg, fix)
	r.stopped = true
}

// element reads one element.
func (r *reader) element(t token, fix string) {
	var err *ElementError
	r.file.Elements, err = ParseElement(r.file.Elements, string(t.text))
	if err != nil {
		if err.Fix != "" {
			fix = err.Fix
		}
		r.bad(t, err.Cause, fix)
	}
	if len(r.file.Elements) > r.most {
		r.fatal(t, fmt.Sprintf("with this element there are more than %d", r.most), "join neighbours into prefixes, or make two sets of it")
	}
}

const lineFix = `a line has an address, a prefix or first-last, and a comment behind "#" or ";"`

// readLines reads a file with an element a line, or the commands of ipset.
func (r *reader) readLines() {
	for {
		t := r.next()
		switch {
		case t.kind == kindEnd:
			return
		case t.kind == kindNewline:
			continue
		case t.kind == kindWord && (string(t.text) == "create" || string(t.text) == "add"):
			r.command(string(t.text) == "create")
			continue
		case t.kind != kindWord:
			r.bad(t, quoted(string(t.text))+" is no address", lineFix)
			r.skipLine()
			continue
		}
		r.element(t, lineFix)
		if t = r.next(); t.kind != kindNewline && t.kind != kindEnd {
			r.bad(t, fmt.Sprintf("%s stands behind an element", quoted(string(t.text))), lineFix)
			r.skipLine()
		}
	}
}

// skipLine moves behind the end of a line.
func (r *reader) skipLine() {
	for t := r.next(); t.kind != kindNewline && t.kind != kindEnd; {
		t = r.next()
	}
}
