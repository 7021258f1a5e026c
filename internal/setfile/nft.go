package setfile

import (
	"fmt"
	"strings"
)

// nft is what the statements so far have said.
type nft struct {
	depth int     // of open braces
	has   [2]bool // earlier blocks of elements have some of IPv4, and of IPv6
}

const nftFix = "keep what nft list set prints, elements = { … }, or the braces alone"

// isNFT reports whether a file that begins with these bytes has a form of nftables.
func isNFT(first []byte) bool {
	for _, word := range []string{"table", "set", "elements", "define"} {
		rest, ok := strings.CutPrefix(string(first), word)
		if ok && (rest == "" || strings.IndexByte(" \t\r\n={", rest[0]) >= 0) {
			return true
		}
	}
	return len(first) > 0 && first[0] == '{'
}

// readNFT reads statements of nftables.
func (r *reader) readNFT() {
	r.lexer.punctuate("{},=;")
	for {
		switch t := r.next(); {
		case t.kind == kindEnd && r.nft.depth == 0:
			return
		case t.kind == kindEnd:
			r.bad(t, "the file ends ahead of a }", "it was cut: write it again")
			return
		case t.kind == kindNewline, t.kind == ';':
		case t.kind == '}' && r.nft.depth > 0:
			r.nft.depth--
		case t.kind == '{' && r.nft.depth == 0:
			r.elements(t)
		case t.kind == kindWord:
			r.statement(t)
		default:
			r.unexpected(t)
		}
	}
}

// unexpected ends the reading at a token.
func (r *reader) unexpected(t token) {
	what := "the end of the line"
	switch t.kind {
	case kindNewline:
	case kindEnd:
		what = "the end of the file"
	case kindWord, kindText:
		what = quoted(string(t.text))
	default:
		what = quoted(string([]byte{byte(t.kind)}))
	}
	r.fatal(t, what+" was not expected", nftFix)
}

// statement reads a statement that begins with a word.
func (r *reader) statement(t token) {
	switch string(t.text) {
	case "table":
		r.open()
	case "set":
		r.open()
	case "define":
		if name := r.next(); name.kind != kindWord {
			r.unexpected(name)
			return
		}
		r.assigned()
	case "elements":
		r.assigned()
	case "type":
		if typ := r.value("type"); typ != "ipv4_addr" && typ != "ipv6_addr" {
			r.fatal(t, fmt.Sprintf("a set of type %s has more than addresses", quoted(typ)), "keep a set of ipv4_addr or ipv6_addr")
			return
		}
		r.endStatement()
	case "typeof", // elements of other types are no addresses, and so refused
		"flags", "timeout", "gc-interval", "size", "policy", "auto-merge", "comment", "counter":
		r.skipStatement()
	default:
		r.fatal(t, fmt.Sprintf("%s is no part of a set", quoted(string(t.text))), nftFix)
	}
}

// open reads the names of a table or a set, and its brace.
func (r *reader) open() {
	for {
		switch t := r.next(); t.kind {
		case kindWord, kindNewline:
		case '{':
			r.nft.depth++
			return
		default:
			r.unexpected(t)
			return
		}
	}
}

// endStatement reads the end of a statement.
func (r *reader) endStatement() {
	switch t := r.next(); t.kind {
	case kindNewline, ';', kindEnd:
	case '}':
		r.giveBack(t)
	default:
		r.unexpected(t)
	}
}

// skipStatement moves behind a statement without braces.
func (r *reader) skipStatement() {
	for {
		switch t := r.next(); t.kind {
		case kindNewline, ';', kindEnd:
			return
		case '}':
			r.giveBack(t)
			return
		case '{':
			r.unexpected(t)
			return
		}
	}
}

// assigned reads = { … }.
func (r *reader) assigned() {
	t := r.next()
	if t.kind != '=' {
		r.unexpected(t)
		return
	}
	for t = r.next(); t.kind == kindNewline; {
		t = r.next()
	}
	if t.kind != '{' {
		r.unexpected(t)
		return
	}
	r.elements(t)
}

// elements reads the elements of a set, of which the brace was read last. Two blocks with addresses of one version of IP are two
// sets: a list of those to block and one of those to allow, say.
func (r *reader) elements(brace token) {
	begin, before := len(r.file.Elements), r.nft.has
	defer func() {
		for _, p := range r.file.Elements[begin:] {
			version := 0
			if !p.Addr().Is4() {
				version = 1
			}
			if before[version] {
				r.fatal(brace, "the file has two sets of one type", "make a file of each")
				return
			}
			r.nft.has[version] = true
		}
	}()
	for {
		switch t := r.next(); t.kind {
		case kindNewline, ',':
		case '}':
			return
		case kindWord:
			r.element(t, nftFix)
			if !r.options() {
				return
			}
		case kindEnd:
			r.bad(t, "the elements have no }", "the file was cut: write it again")
			return
		default:
			r.unexpected(t)
			return
		}
	}
}

// options reads what stands behind an element, up to the comma. It returns false if the brace ends it.
func (r *reader) options() (more bool) {
	timed := false
	for {
		t := r.next()
		switch t.kind {
		case kindNewline:
			continue
		case ',':
			return true
		case '}':
			return false
		case kindWord:
		default:
			r.giveBack(t) // elements reports it
			return true
		}
		switch option := string(t.text); option {
		case "timeout", "expires":
			if value := r.value(option); value != "never" && value != "0s" && !timed {
				timed = true
				r.file.Timed++
			}
		case "packets", "bytes", "comment": // they do not say which packets are in the set
			r.value(option)
		case "counter":
		case ".":
			r.fatal(t, "the element has more than an address", "keep a set of ipv4_addr or ipv6_addr")
		case ":":
			r.fatal(t, "the element has a value: this is a map", "keep a set of ipv4_addr or ipv6_addr")
		default:
			r.fatal(t, fmt.Sprintf("%s stands behind an element", quoted(option)), nftFix)
		}
	}
}
