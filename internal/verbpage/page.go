// Package verbpage is a page of shared memory that names the verbs of libibverbs under way in a process. If a verb
// ends the process, another process reads from the page which verb it was, and on which device. A log could not tell:
// a crashed process has no time to write it.
//
// The page has lines of a fixed size, one for each call under way. The writer stores the names first and then the
// number of the call, and stores 0 when the call has returned. So the page names exactly the calls under way, and the
// highest number is the newest call. Naming a call takes no lock, makes no system call and allocates nothing. If there
// are more calls at once than lines, the rest go unnamed.
package verbpage

import (
	"bytes"
	"encoding/binary"
	"strings"
	"sync/atomic"
	"unicode"
)

// A line has the number of the call (8 bytes in host order), the name of the device and the name of the verb. Both
// names are padded with zeros, and cut if they are too long.
const (
	size     = 4096
	lineSize = 128
	lines    = size / lineSize
	deviceAt = 8
	verbAt   = deviceAt + 56
	noLine   = -1
)

// Page is one process's mapping of the shared page. All methods accept a nil *Page, which names nothing.
type Page struct {
	mem   []byte // shared; nil after Close
	words [lines]*atomic.Uint64
	taken [lines]atomic.Bool // lines in use; only the writer needs it
	calls atomic.Uint64
}

func newPage(mem []byte) *Page {
	p := &Page{mem: mem}
	for i := range p.words {
		p.words[i] = word(mem, i*lineSize)
	}
	return p
}

// Begin names a call that is about to start. Pass the returned line to End. Any goroutine may call it.
func (p *Page) Begin(device, verb string) (line int) {
	if p == nil {
		return noLine
	}
	for i := range p.taken {
		if p.taken[i].Load() || !p.taken[i].CompareAndSwap(false, true) {
			continue
		}

		// Store the number last: a reader takes a line with a number to be complete.
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

// End takes the call of a line off the page, because it has returned.
func (p *Page) End(line int) {
	if p == nil || line == noLine {
		return
	}
	p.words[line].Store(0)
	p.taken[line].Store(false)
}

// Last returns the newest call under way. Use it after the writer's death: a living writer may change the page at the
// same time. We do not trust the writer's bytes, so Last makes them printable.
func (p *Page) Last() (device, verb string, ok bool) {
	if p == nil {
		return "", "", false
	}

	mem := bytes.Clone(p.mem)
	newest := uint64(0)
	for i := range lines {
		line := mem[i*lineSize : (i+1)*lineSize]
		call := binary.NativeEndian.Uint64(line)
		if call > newest {
			newest = call
			device = text(line[deviceAt:verbAt])
			verb = text(line[verbAt:])
		}
	}
	return device, verb, newest != 0
}

// Oldest returns the number of the oldest call under way, or 0 if none is. While the number stays, that call has not
// returned. The writer may be alive.
func (p *Page) Oldest() uint64 {
	if p == nil {
		return 0
	}

	oldest := uint64(0)
	for i := range p.words {
		if call := p.words[i].Load(); call != 0 && (oldest == 0 || call < oldest) {
			oldest = call
		}
	}
	return oldest
}

// text returns the printable form of a padded name.
func text(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return '?'
		}
		return r
	}, string(b))
}
