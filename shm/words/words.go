// Package words lets a program feed a counter of a mirror, by its own RDMA device or by itself. Take takes the counter's reserved
// words: two numbers in shared memory, which are the value of the counter.
//
// The words of each counter are in a file of their own, so a program can write to nothing else. The file has no name: the socket
// NAME.words beside the mirror hands out its descriptor. Its length is sealed, so no process can cut it short under another
// one's mapping. docs/mirror-format.md specifies the messages of the socket.
package words

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/edsrzf/mmap-go"
)

// Sentinels of Take.
var (
	// ErrNotFound: no words are reserved under the name.
	ErrNotFound = errors.New("no such reserved words")
	// ErrInUse: another program has the words, or has abandoned them a moment ago.
	ErrInUse = errors.New("words in use")
	// ErrInvalid: an argument breaks a rule; the text says which.
	ErrInvalid = errors.New("invalid")
	// ErrFormat: the other end of the socket is not flowtally's, or of another version.
	ErrFormat = errors.New("not a reply of this format")
)

// Path returns the path of the socket that hands out the words files of the mirror at path.
func Path(mirror string) string { return strings.TrimSuffix(mirror, ".mirror") + ".words" }

// fileSize is the length of a words file: a page, because a device gets access to whole pages.
const fileSize = 4096

// longestName is the highest number of bytes in the name of a counter.
const longestName = 63

// LeastLimit is the smallest limit of words in a words file: a device must count less than half of the limit between two
// poll cycles.
const LeastLimit = 1 << 24

// The layout of a message of the socket NAME.words, in either direction.
const (
	markOfOrder  = 0x01020304
	wdmMagic     = "FLOWWORD"
	wdmVersion   = 8
	wdmByteOrder = 12
	wdmKind      = 16 // of a request: a RequestKind; of a reply: an errno, 0 with a descriptor
	wdmNumber    = 24 // of the words file
	wdmLimit     = 32 // of a request: largest value of a word; of a reply: ns until the words can be taken
	wdmIndex     = 40 // of a reply: the handle of the counter
	wdmGenerated = 44
	wdmName      = 64 // char[64]
	messageSize  = 128
)

// RequestKind is the kind of a request to the socket NAME.words.
type RequestKind uint32

// The kinds of requests.
const (
	// TakeWords asks for the reserved words of a counter, for writing. The client has them until it closes the connection.
	TakeWords RequestKind = 1
	// ReadWords asks for the words file of a number, for reading.
	ReadWords RequestKind = 2
	// ReturnWords returns taken words, on the connection that has them. The words must be final: the instance reads them once
	// more.
	ReturnWords RequestKind = 3
)

// Request is a request to the socket NAME.words.
type Request struct {
	Kind   RequestKind
	Name   string // of the counter, with TakeWords
	Number uint64 // of the words file, with ReadWords
	Limit  uint64 // with TakeWords: the words go on at 0 past it
}

// Reply is the reply of the socket NAME.words. A descriptor comes with it if Errno is 0, and only then.
type Reply struct {
	Errno  uint32
	Number uint64 // of the words file
	// Index and Generation are the handle of the counter.
	Index, Generation uint32
	Wait              int64 // ns until the words can be taken; 0: unknown
}

func newMessage(kind uint32) []byte {
	b := make([]byte, messageSize)
	copy(b, wdmMagic)
	binary.NativeEndian.PutUint32(b[wdmVersion:], 1)
	binary.NativeEndian.PutUint32(b[wdmByteOrder:], markOfOrder)
	binary.NativeEndian.PutUint32(b[wdmKind:], kind)
	return b
}

func checkMessage(b []byte) error {
	switch {
	case len(b) != messageSize:
		return fmt.Errorf("a message of %d bytes, where %d belong: %w", len(b), messageSize, ErrFormat)
	case string(b[:len(wdmMagic)]) != wdmMagic ||
		binary.NativeEndian.Uint32(b[wdmByteOrder:]) != markOfOrder ||
		binary.NativeEndian.Uint32(b[wdmVersion:]) != 1:
		return fmt.Errorf("not a message of version 1 in this machine's byte order: %w", ErrFormat)
	}
	return nil
}

// Message returns the request as bytes.
func (r Request) Message() []byte {
	b := newMessage(uint32(r.Kind))
	binary.NativeEndian.PutUint64(b[wdmNumber:], r.Number)
	binary.NativeEndian.PutUint64(b[wdmLimit:], r.Limit)
	copy(b[wdmName:messageSize-1], r.Name)
	return b
}

// ParseRequest decodes a request.
func ParseRequest(b []byte) (Request, error) {
	if err := checkMessage(b); err != nil {
		return Request{}, err
	}
	name, _, _ := strings.Cut(string(b[wdmName:]), "\x00")
	return Request{
		Kind:   RequestKind(binary.NativeEndian.Uint32(b[wdmKind:])),
		Name:   name,
		Number: binary.NativeEndian.Uint64(b[wdmNumber:]),
		Limit:  binary.NativeEndian.Uint64(b[wdmLimit:]),
	}, nil
}

// Message returns the reply as bytes.
func (r Reply) Message() []byte {
	b := newMessage(r.Errno)
	binary.NativeEndian.PutUint64(b[wdmNumber:], r.Number)
	binary.NativeEndian.PutUint64(b[wdmLimit:], uint64(r.Wait))
	binary.NativeEndian.PutUint32(b[wdmIndex:], r.Index)
	binary.NativeEndian.PutUint32(b[wdmGenerated:], r.Generation)
	return b
}

func parseReply(b []byte) (Reply, error) {
	if err := checkMessage(b); err != nil {
		return Reply{}, err
	}
	return Reply{
		Errno:      binary.NativeEndian.Uint32(b[wdmKind:]),
		Number:     binary.NativeEndian.Uint64(b[wdmNumber:]),
		Index:      binary.NativeEndian.Uint32(b[wdmIndex:]),
		Generation: binary.NativeEndian.Uint32(b[wdmGenerated:]),
		Wait:       int64(binary.NativeEndian.Uint64(b[wdmLimit:])),
	}, nil
}

// Mapping is a mapped words file. The garbage collector unmaps it once nothing refers to it.
type Mapping struct {
	b     []byte
	Words *[2]uint64 // completions and errors
}

func newMapping(b mmap.MMap) *Mapping {
	m := &Mapping{b: b, Words: overlay(b)}
	runtime.AddCleanup(m, func(b mmap.MMap) { _ = b.Unmap() }, b)
	return m
}

// The two words of a file.
const (
	completions = 0
	failures    = 1
)

// Words are the reserved words of a counter, and this process feeds them: either its device writes them, or Add does. Take
// returns them. Any goroutine may call the methods.
type Words struct {
	m     *Mapping
	reply Reply
	limit uint64
	conn  connection
}

// Handle returns the index and the generation of the counter's handle in the mirror.
func (w *Words) Handle() (index, generation uint32) { return w.reply.Index, w.reply.Generation }

// Memory returns the memory of the two words, completions and errors: 8 bytes each, in a mapping outside the Go heap. It can be
// the external memory of a completion counter. The errors follow the completions, so comp[:16] is the memory of both. It stays
// mapped as long as something refers to the Words.
func (w *Words) Memory() (comp, errs []byte) { return w.m.b[0:8:16], w.m.b[8:16:16] }

// Add counts completions and errors in the words, for a program that counts by itself. No device may write the same words. With
// an Options.Limit, words wrap around to 0 after it, so a program must add less than half of the limit between two poll cycles.
func (w *Words) Add(comp, errs uint64) {
	if comp != 0 {
		w.add(completions, comp)
	}
	if errs != 0 {
		w.add(failures, errs)
	}
}

// add adds n to a word, modulo limit + 1. Several goroutines may add concurrently.
func (w *Words) add(which int, n uint64) {
	word := &w.m.Words[which]
	if w.limit == math.MaxUint64 {
		atomic.AddUint64(word, n)
		return
	}

	n %= w.limit + 1
	for {
		was := atomic.LoadUint64(word)
		now := was + n
		if n > w.limit-was {
			now -= w.limit + 1
		}
		if atomic.CompareAndSwapUint64(word, was, now) {
			return
		}
	}
}

// Load returns the current words, which began at 0.
func (w *Words) Load() (comp, errs uint64) {
	return atomic.LoadUint64(&w.m.Words[completions]), atomic.LoadUint64(&w.m.Words[failures])
}
