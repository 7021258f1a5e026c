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

// shelf keeps rendered responses in memory and shares them, so a crowd of clients costs the work and the memory of one.
//
// Each response is rendered once per poll cycle. If rendering takes longer than a cycle, all clients arriving during one
// rendering share the next. A slow client keeps its response in memory. When the responses exceed most bytes, the shelf
// drops the oldest one and cuts the connections still reading it.
type shelf struct {
	most int64 // bytes; a single response may be longer

	mu         sync.Mutex
	held       int64 // bytes of all
	kindByName map[string]*kindOfResponse
	all        []*response // oldest first
	bodies     sync.Pool   // of *bytes.Buffer, grown to the size of earlier responses
}

// kindOfResponse has the responses of one path in one format.
type kindOfResponse struct {
	latest   *response // nil: none
	building *building // nil: nobody is rendering
}

// building is a rendering in progress. Other clients of its kind wait for done.
type building struct {
	began time.Time
	done  chan struct{} // closed after err was set
	err   error
}

// response is a rendered response. Its body never changes.
type response struct {
	kind        *kindOfResponse
	began       time.Time
	stamp       stamp
	contentType string
	body        *bytes.Buffer

	zip    sync.Once
	zipped []byte

	// Guarded by shelf.mu.
	bytes   int64           // its share of shelf.held
	claims  map[*claim]bool // the clients reading it
	dropped bool            // no longer on the shelf
}

// stamp identifies a poll cycle of a mirror, together with the state of its writer. Responses with equal stamps differ
// only in the ages they show.
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

// mostShared is the longest time for which clients share a response, even if the poll cycle goes on: it also shows ages,
// such as the time since the writer's last sign of life.
const mostShared = time.Second

func newShelf(most int64) *shelf {
	return &shelf{
		most:       most,
		kindByName: make(map[string]*kindOfResponse),
		bodies:     sync.Pool{New: func() any { return new(bytes.Buffer) }},
	}
}

var errHeld = errors.New("too many responses wait for their clients")

// request is what a client asks the shelf for.
type request struct {
	kind   string               // path and format
	now    func() (stamp, bool) // the current poll cycle; false: unknown without waiting
	render func(*bytes.Buffer) (contentType string, of stamp, err error)
	cut    func() error // ends the client's connection
}

// claim is one client reading a response. Until release the shelf may call cut to end the client's connection.
type claim struct {
	response *response
	cut      func() error
}

// current reports whether the response still shows the current poll cycle.
func (r *response) current(now func() (stamp, bool)) bool {
	if time.Since(r.began) >= min(r.stamp.period, mostShared) {
		return false
	}
	s, ok := now()
	return ok && s == r.stamp
}

func (r *response) claim(cut func() error) *claim {
	c := &claim{response: r, cut: cut}
	r.claims[c] = true
	return c
}

// take returns a claim on a response of the current poll cycle, or on one whose rendering began after the call. So no
// client gets values older than its own request, unless they are still current. Callers must release the claim.
func (s *shelf) take(ctx context.Context, req request) (*claim, error) {
	arrived := time.Now()
	for {
		s.mu.Lock()
		k := s.kindByName[req.kind]
		if k == nil {
			k = &kindOfResponse{}
			s.kindByName[req.kind] = k
		}
		if r := k.latest; r != nil && (!r.began.Before(arrived) || r.current(req.now)) {
			c := r.claim(req.cut)
			s.mu.Unlock()
			return c, nil
		}

		b := k.building
		if b == nil {
			b = &building{began: time.Now(), done: make(chan struct{})}
			k.building = b
			s.mu.Unlock()
			return s.build(k, b, req)
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

// keep makes r the latest response of its kind and drops older ones to fit it in. Callers must hold mu.
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

// makeRoom drops the oldest responses, except keep, until the rest fits. It returns false if it cannot cut off a client,
// which would go on reading, and so keep its response in memory. Callers must hold mu.
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

// drop takes a response off the shelf. If clients are still reading it, its memory is freed after the last one. Callers
// must hold mu.
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

// release ends a claim. The last claim on an outdated response drops it.
func (s *shelf) release(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := c.response
	delete(r.claims, c)
	if len(r.claims) == 0 && r.kind.latest != r {
		s.drop(r)
	}
}

// gzipped returns the compressed body. The first client compresses it for all others.
func (s *shelf) gzipped(r *response, zips *sync.Pool) []byte {
	r.zip.Do(func() {
		var b bytes.Buffer
		z := zips.Get().(*gzip.Writer)
		z.Reset(&b)
		z.Write(r.body.Bytes()) // writes to a bytes.Buffer never fail
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

// build renders the response for which the clients of b wait. If render panics, they get an error instead of waiting for
// ever: http.Server recovers the panic in the goroutine of one client alone.
func (s *shelf) build(k *kindOfResponse, b *building, req request) (c *claim, err error) {
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
			c, err = s.keep(r, req.cut)
		}
		b.err = err
		k.building = nil
		close(b.done)
	}()
	r.contentType, r.stamp, err = req.render(r.body)
	return nil, err
}
