package setfile

import (
	"bufio"
	"errors"
	"io"
)

// mostWord limits a word in bytes. The longest that a tool prints is a comment of 255.
const mostWord = 1024

// kind is the kind of a token.
type kind byte

// The kinds of tokens, beside the bytes of punctuation.
const (
	kindEnd     kind = 0
	kindWord    kind = 'w'
	kindText    kind = '"'
	kindNewline kind = '\n'
	kindBroken  kind = 'x' // a word that is too long, or a text without its end
)

// token is a word, a text in quotes, a line's end or a byte of punctuation.
type token struct {
	kind      kind
	text      []byte // of a word or a text; valid until the next token
	line, col int    // from 1, col in bytes
}

// role is what a byte does outside of words and quotes.
type role byte

const (
	rolePart role = iota // of a word
	roleBlank
	roleNewline
	roleQuote
	roleComment     // begins a comment, which ends with its line
	rolePunctuation // is a token
)

// lexer splits a file into tokens.
type lexer struct {
	r         *bufio.Reader
	roles     [256]role
	word      []byte
	line, col int // of the next byte
	err       error
}

func newLexer(r io.Reader) *lexer {
	l := &lexer{r: bufio.NewReaderSize(r, 64<<10), line: 1, col: 1}
	if mark, _ := l.r.Peek(3); string(mark) == "\xef\xbb\xbf" {
		_, _ = l.r.Discard(3)
	}
	for _, c := range []byte(" \t\r\v\f") {
		l.roles[c] = roleBlank
	}
	l.roles['\n'] = roleNewline
	l.roles['"'] = roleQuote
	l.roles['#'] = roleComment
	l.roles[';'] = roleComment
	return l
}

// punctuate makes bytes tokens of their own.
func (l *lexer) punctuate(bytes string) {
	for _, c := range []byte(bytes) {
		l.roles[c] = rolePunctuation
	}
}

// read returns the next byte. ok is false at the end of the file, and after an error.
func (l *lexer) read() (c byte, ok bool) {
	c, err := l.r.ReadByte()
	if err != nil {
		if !errors.Is(err, io.EOF) {
			l.err = err
		}
		return 0, false
	}
	l.col++
	if c == '\n' {
		l.line++
		l.col = 1
	}
	return c, true
}

// unread takes back the byte of the last read, which was on this line.
func (l *lexer) unread(line, col int) {
	_ = l.r.UnreadByte()
	l.line = line
	l.col = col
}

// first moves to the first byte of the file that is no blank and in no comment. It returns up to n bytes from there.
func (l *lexer) first(n int) []byte {
	for {
		line, col := l.line, l.col
		c, ok := l.read()
		if !ok {
			return nil
		}
		switch l.roles[c] {
		case roleBlank, roleNewline:
		case roleComment:
			l.skipComment()
		default:
			l.unread(line, col)
			b, _ := l.r.Peek(n)
			return b
		}
	}
}

// next returns the next token.
func (l *lexer) next() token {
	for {
		t := token{line: l.line, col: l.col}
		c, ok := l.read()
		if !ok {
			return t
		}
		switch l.roles[c] {
		case roleBlank:
		case roleNewline:
			t.kind = kindNewline
			return t
		case roleComment:
			l.skipComment()
		case roleQuote:
			return l.quoted(t)
		case rolePunctuation:
			t.kind = kind(c)
			return t
		default:
			return l.wordFrom(t, c)
		}
	}
}

// skipComment moves to the end of the line, which is the next token.
func (l *lexer) skipComment() {
	for {
		line, col := l.line, l.col
		c, ok := l.read()
		if !ok {
			return
		}
		if c == '\n' {
			l.unread(line, col)
			return
		}
	}
}

// wordFrom reads the rest of a word that begins with c.
func (l *lexer) wordFrom(t token, c byte) token {
	t.kind = kindWord
	l.word = append(l.word[:0], c)
	for {
		line, col := l.line, l.col
		c, ok := l.read()
		if !ok {
			break
		}
		if l.roles[c] != rolePart && l.roles[c] != roleQuote {
			l.unread(line, col)
			break
		}
		if len(l.word) == mostWord {
			t.kind = kindBroken
			break
		}
		l.word = append(l.word, c)
	}
	t.text = l.word
	return t
}

// quoted reads the rest of a text in quotes.
func (l *lexer) quoted(t token) token {
	t.kind = kindText
	l.word = l.word[:0]
	for {
		c, ok := l.read()
		if !ok || c == '\n' || len(l.word) == mostWord {
			t.kind = kindBroken
			break
		}
		if c == '"' {
			break
		}
		l.word = append(l.word, c)
	}
	t.text = l.word
	return t
}
