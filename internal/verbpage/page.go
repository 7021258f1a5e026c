// Package verbpage is a page of memory in which a process names each verb of libibverbs before it
// calls it. Another process shares the page, and reads there after the first one's death in which
// verb of which device it died: no log can say that, as the dead process had no time to write one.
//
// The writer's lines are of a fixed size. Each belongs to one call: the names are written first, then
// the number of the call, which is 0 again when the call has returned. So the page names exactly the
// calls that are under way, the highest number being the call that began last. A call takes no lock,
// makes no system call and allocates nothing; with more calls at once than lines, the rest is not named.
package verbpage

import (
	"bytes"
	"encoding/binary"
	"strings"
	"sync/atomic"
	"unicode"
)

// The layout: lines of lineSize bytes, each the call's number (8 bytes, host order), the device's
// name and the verb's, both padded with zeros and cut where they are too long.
const (
	size     = 4096
	lineSize = 128
	lines    = size / lineSize
	deviceAt = 8
	verbAt   = deviceAt + 56
	noLine   = -1
)

// Page is the shared page, on either side. A nil *Page names nothing.
type Page struct {
	mem   []byte // shared; nil after Close
	words [lines]*atomic.Uint64
	taken [lines]atomic.Bool // of the writer alone: which lines are in use
	calls atomic.Uint64
}

func newPage(mem []byte) *Page {
	p := &Page{mem: mem}
	for i := range p.words {
		p.words[i] = word(mem, i*lineSize)
	}
	return p
}

// Begin names a call and returns its line, for End. Any goroutine may call it.
func (p *Page) Begin(device, verb string) (line int) {
	if p == nil {
		return noLine
	}
	for i := range p.taken {
		if p.taken[i].Load() || !p.taken[i].CompareAndSwap(false, true) {
			continue
		}
		at := p.mem[i*lineSize : (i+1)*lineSize]
		put(at[deviceAt:verbAt], device)
		put(at[verbAt:], verb)
		p.words[i].Store(p.calls.Add(1))
		return i
	}
	return noLine
}

func put(dst []byte, s string) {
	clear(dst[copy(dst, s):])
}

// End notes that the call of a line has returned.
func (p *Page) End(line int) {
	if p == nil || line == noLine {
		return
	}
	p.words[line].Store(0)
	p.taken[line].Store(false)
}

// Last returns the call that began last among the calls that have not returned. It is read when the
// writer is dead. The writer's bytes are not trusted, and Last makes them printable.
func (p *Page) Last() (device, verb string, ok bool) {
	if p == nil {
		return "", "", false
	}
	mem := bytes.Clone(p.mem)
	last := uint64(0)
	for i := range lines {
		at := mem[i*lineSize : (i+1)*lineSize]
		if n := binary.NativeEndian.Uint64(at); n > last {
			last, device, verb = n, text(at[deviceAt:verbAt]), text(at[verbAt:])
		}
	}
	return device, verb, last != 0
}

func text(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return '?'
		}
		return r
	}, string(b))
}
