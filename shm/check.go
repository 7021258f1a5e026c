package shm

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
)

// Problem is a broken invariant of a mirror.
type Problem struct {
	Object string // "header", "entry 7", "block 3", "record 0", "history record 12", "file"
	Offset int64  // of the object in the file
	Text   string
}

func (p Problem) String() string { return fmt.Sprintf("%s at %d: %s", p.Object, p.Offset, p.Text) }

// maxProblems is where Check stops: in a file of another kind every word is a problem.
const maxProblems = 1000

// Check finds every broken invariant of the mirror at path. It finds none beside a writer at work, and none after a writer
// was killed at any point. An error means that Check could not read the file; if the file is no mirror, that is a Problem.
func Check(path string) (ps []Problem, err error) {
	f, _, err := openTrusted(path, ReaderOptions{AnyOwner: true})
	if err != nil {
		return nil, err
	}
	defer f.Close()

	var v *view
	fault := Guard(func() error {
		v, err = attach(fileStore{File: f})
		if err != nil {
			object := "header"
			if errors.Is(err, ErrTruncated) {
				object = "file"
			}
			ps = []Problem{{Object: object, Text: err.Error()}}
			return nil
		}
		ps = append(v.check(), v.checkDevice(path)...)
		return nil
	})
	runtime.KeepAlive(v)
	if fault != nil {
		ps = append(ps, Problem{Object: "file", Text: fault.Error()})
	}
	return ps, nil
}

// checker collects problems.
type checker struct {
	v       *view
	ps      []Problem
	written []uint32 // by segment: the first slot of the hole at its end, which was never written

	// holes are two holes in the segment being checked, each by its first offset and its end: one after the first copies
	// in use, one after the second copies in use.
	holes [2][2]uint64
}

func (c *checker) full() bool { return len(c.ps) >= maxProblems }

func (c *checker) add(object string, offset uint64, format string, a ...any) {
	if !c.full() {
		c.ps = append(c.ps, Problem{Object: object, Offset: int64(offset), Text: fmt.Sprintf(format, a...)})
	}
}

// zero adds a problem for the first byte of b that is not zero. offset is where b is in the file.
func (c *checker) zero(object string, offset uint64, b []byte) {
	if rest := bytes.TrimLeft(b, "\x00"); len(rest) > 0 {
		c.add(object, offset+uint64(len(b)-len(rest)), "reserved byte is %#x, not 0", rest[0])
	}
}

// isZero reports whether every word is 0, as in a slot that was never used. len(w) must be a multiple of 8. Check spends most
// of its time here, so eight loads share one branch.
func isZero(w []uint64) bool {
	for ; len(w) >= 8; w = w[8:] {
		if atomic.LoadUint64(&w[0])|atomic.LoadUint64(&w[1])|atomic.LoadUint64(&w[2])|atomic.LoadUint64(&w[3])|
			atomic.LoadUint64(&w[4])|atomic.LoadUint64(&w[5])|atomic.LoadUint64(&w[6])|atomic.LoadUint64(&w[7]) != 0 {
			return false
		}
	}
	return true
}

func (v *view) check() []Problem {
	c := &checker{v: v}
	c.header()

	list, err := v.segments()
	if err != nil {
		c.add("file", segmentOffset(v.fixed.history, uint32(len(list))), "%v", err)
	}
	c.catalogue(list)
	for n, s := range list {
		if s.kind == kindRecords {
			c.records(n, s)
		} else {
			c.blocks(n, s)
		}
	}
	c.history()
	return c.ps
}
