package export

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/flowtally/flowtally/shm"
)

// shelf holds the responses in memory. All clients that ask for one at a time share it, so that a crowd costs the work
// and the memory of one client.
//
// A response is rendered once for a poll cycle. Where cycles are shorter than that takes, whoever comes during a
// rendering shares the next one. A client that reads slowly keeps its response in memory. Above most bytes the oldest
// response goes, and with it the connections that are still reading it.
type shelf struct {
	most int64 // bytes; one response alone may be longer

	mu         sync.Mutex
	held       int64 // bytes
	kindByName map[string]*kindOfResponse
	all        []*response // in the order of their rendering
	bodies     sync.Pool   // of *bytes.Buffer, of the size that the last ones had
}

// kindOfResponse is the responses of one path, in one format.
type kindOfResponse struct {
	latest   *response // nil: none
	building *building // nil: nobody renders
}

// building is a response that is being rendered.
type building struct {
	began time.Time
	done  chan struct{} // closed when err is set
	err   error
}

// response is one that was rendered. Its body does not change.
type response struct {
	kind        *kindOfResponse
	began       time.Time
	stamp       stamp
	contentType string
	body        *bytes.Buffer

	zip    sync.Once
	zipped []byte

	// Guarded by shelf.mu.
	bytes   int64
	claims  map[*claim]bool
	dropped bool
}

// stamp tells one poll cycle of a mirror from others.
type stamp struct {
	file       uint64
	generation uint64
	cycle      uint64
	changes    uint64 // of the catalogue
	state      shm.State
	alive      bool
	period     time.Duration
}

func stampOf(s shm.Status) stamp {
	return stamp{
		file:       s.File,
		generation: s.Generation,
		cycle:      s.Cycle,
		changes:    s.CatalogueChanges,
		state:      s.State,
		alive:      s.Alive && !s.Replaced,
		period:     s.PollPeriod,
	}
}

// mostShared bounds how long a response stands for its poll cycle: the ages in it grow old.
const mostShared = time.Second

func newShelf(most int64) *shelf {
	return &shelf{
		most:       most,
		kindByName: make(map[string]*kindOfResponse),
		bodies:     sync.Pool{New: func() any { return new(bytes.Buffer) }},
	}
}

var errHeld = errors.New("too many responses wait for their clients")

// ask is what a client asks for.
type ask struct {
	kind   string               // path and format
	now    func() (stamp, bool) // the present poll cycle; false: not known without waiting
	render func(*bytes.Buffer) (contentType string, of stamp, err error)
	cut    func() error // ends the client's connection
}

// claim is a client that reads a response. The shelf calls cut to end its connection, and no more after release.
type claim struct {
	of  *response
	cut func() error
}

// current reports whether the response shows the poll cycle of now.
func (r *response) current(now func() (stamp, bool)) bool {
	if time.Since(r.began) >= min(r.stamp.period, mostShared) {
		return false
	}
	s, ok := now()
	return ok && s == r.stamp
}

func (r *response) claim(cut func() error) *claim {
	c := &claim{of: r, cut: cut}
	r.claims[c] = true
	return c
}

// take returns a claim on a response that was begun after the call, or that shows the present poll cycle. The caller
// releases it.
func (s *shelf) take(ctx context.Context, a ask) (*claim, error) {
	arrived := time.Now()
	for {
		s.mu.Lock()
		k := s.kindByName[a.kind]
		if k == nil {
			k = &kindOfResponse{}
			s.kindByName[a.kind] = k
		}
		if r := k.latest; r != nil && (!r.began.Before(arrived) || r.current(a.now)) {
			c := r.claim(a.cut)
			s.mu.Unlock()
			return c, nil
		}
		b := k.building
		if b == nil {
			b = &building{began: time.Now(), done: make(chan struct{})}
			k.building = b
			s.mu.Unlock()
			return s.build(k, b, a)
		}
		s.mu.Unlock()

		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-b.done:
		}
		if b.err != nil && !b.began.Before(arrived) {
			return nil, b.err
		}
	}
}

// keep makes r the latest response of its kind, and makes room for it. It is called with mu held.
func (s *shelf) keep(r *response, cut func() error) (*claim, error) {
	r.bytes = int64(r.body.Cap())
	s.held += r.bytes
	s.all = append(s.all, r)
	if !s.makeRoom(r) {
		s.drop(r)
		return nil, errHeld
	}

	before := r.kind.latest
	r.kind.latest = r
	if before != nil && len(before.claims) == 0 {
		s.drop(before)
	}
	return r.claim(cut), nil
}

// makeRoom drops the oldest responses but keep, until the others fit. It returns false if a client cannot be cut off.
// It is called with mu held.
func (s *shelf) makeRoom(keep *response) bool {
	for s.held > s.most {
		i := slices.IndexFunc(s.all, func(r *response) bool { return r != keep })
		if i < 0 {
			return true
		}
		for c := range s.all[i].claims {
			if c.cut() != nil {
				return false
			}
		}
		s.drop(s.all[i])
	}
	return true
}

// drop takes a response off the shelf. Its memory is free when its last client has gone. It is called with mu held.
func (s *shelf) drop(r *response) {
	if r.dropped {
		return
	}
	r.dropped = true
	s.held -= r.bytes
	s.all = slices.DeleteFunc(s.all, func(o *response) bool { return o == r })
	if r.kind.latest == r {
		r.kind.latest = nil
	}
	if len(r.claims) == 0 {
		s.bodies.Put(r.body)
	}
}

// release ends a claim.
func (s *shelf) release(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := c.of
	delete(r.claims, c)
	if len(r.claims) == 0 && r.kind.latest != r {
		s.drop(r)
	}
}

// gzipped returns the body, compressed once for all clients.
func (s *shelf) gzipped(r *response, zips *sync.Pool) []byte {
	r.zip.Do(func() {
		var b bytes.Buffer
		z := zips.Get().(*gzip.Writer)
		z.Reset(&b)
		z.Write(r.body.Bytes()) // a bytes.Buffer fails no write
		z.Close()
		zips.Put(z)
		r.zipped = b.Bytes()

		s.mu.Lock()
		defer s.mu.Unlock()
		if !r.dropped {
			r.bytes += int64(b.Cap())
			s.held += int64(b.Cap())
		}
	})
	return r.zipped
}

// build renders the response that b stands for. A panic of render is an error for those who wait for b.
func (s *shelf) build(k *kindOfResponse, b *building, a ask) (c *claim, err error) {
	r := &response{
		kind:   k,
		began:  b.began,
		body:   s.bodies.Get().(*bytes.Buffer),
		claims: make(map[*claim]bool),
	}
	r.body.Reset()

	err = errors.New("the response could not be rendered")
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err == nil {
			c, err = s.keep(r, a.cut)
		}
		b.err = err
		k.building = nil
		close(b.done)
	}()
	r.contentType, r.stamp, err = a.render(r.body)
	return nil, err
}
