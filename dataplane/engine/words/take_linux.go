package words

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/shm"
	shmwords "github.com/flowtally/flowtally/shm/words"
)

// take gives reserved words to a client. It returns nil if it refused them, after a reply with the reason.
func (s *Set) take(c *client, request shmwords.Request) *reservation {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.byName[request.Name]
	refuse := func(errno unix.Errno, wait time.Duration) *reservation {
		_ = c.reply(shmwords.Reply{Errno: uint32(errno), Wait: int64(wait)}, nil)
		return nil
	}
	switch {
	case s.closed:
		return nil
	case r == nil:
		return refuse(unix.ENOENT, 0)
	case r.state == dataplane.WordsTaken:
		return refuse(unix.EBUSY, 0)
	case request.Limit < shmwords.LeastLimit:
		return refuse(unix.EINVAL, 0)
	}
	if !s.unread.Room(c.uid) {
		return refuse(unix.ETOOMANYREFS, 0)
	}

	// See Options.CoolDown.
	if left := s.opts.CoolDown - time.Since(r.since); r.state == dataplane.WordsAbandoned && left > 0 {
		return refuse(unix.EAGAIN, left)
	}

	if err := s.prepare(r, request.Limit); err != nil {
		s.opts.Logger.Warn("reserved words were not handed out", "counter", r.name, "err", err)
		if errors.Is(err, shm.ErrFull) {
			return refuse(unix.ENOSPC, 0)
		}
		return refuse(unix.EIO, 0)
	}

	reply := shmwords.Reply{
		Number:     r.file.Number(),
		Index:      r.handle.Index,
		Generation: r.handle.Generation,
	}
	if err := c.reply(reply, r.file.Descriptor(true)); err != nil {
		r.state = dataplane.WordsFree // prepare has counted the discontinuity of the last program, so do not count it again
		s.setState(r, dataplane.WordsFree, "a program ended before it had the words", s.withdraw(r))
		return nil
	}
	c.handed = true
	r.taker = c
	s.setState(r, dataplane.WordsTaken, "a program has taken the words", false)
	return r
}

// prepare gives the counter words in a new file, and its total continues there. The caller holds mu.
func (s *Set) prepare(r *reservation, limit uint64) error {
	s.withdraw(r)
	seg, err := s.opts.Mirror.DeviceSegment(s.slots)
	if errors.Is(err, shm.ErrFull) { // queue pairs have made a smaller one: use that
		seg, err = s.opts.Mirror.DeviceSegment(1)
	}
	if err != nil {
		return err
	}

	file, err := shmwords.NewFile()
	if err != nil {
		return err
	}
	slot, err := seg.SlotApart(file)
	if err != nil {
		file.Close()
		return err
	}

	total, _ := r.last.Load()
	if err := s.opts.Mirror.SetDevice(r.handle, slot, total.Packets, total.Bytes, limit); err != nil {
		slot.Free()
		file.Close()
		return fmt.Errorf("naming the words in the mirror: %w", err)
	}

	r.file = file
	r.lease.Store(&lease{slot: slot, asked: limit, limit: limit, from: total})
	return nil
}

// awaitReturn waits until the program with the words returns them, or ends.
func (s *Set) awaitReturn(c *client, r *reservation) {
	returned := false
	if c.f.SetDeadline(time.Time{}) == nil {
		request, err := c.receive()
		returned = err == nil && request.Kind == shmwords.ReturnWords
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if r.taker != c { // Release was called meanwhile
		return
	}
	r.taker = nil
	switch {
	case s.closed: // the next process of the instance continues the total
	case returned:
		uncounted := s.withdraw(r)
		s.setState(r, dataplane.WordsFree, "the program has given the words back", uncounted)
	default:
		s.setState(r, dataplane.WordsAbandoned, "the program ended without giving the words back", true)
	}
}

// read sends a words file to a reader.
func (s *Set) read(c *client, number uint64) {
	// Replying under mu is harmless, because a reply fits the empty buffer of a new connection and does not block.
	s.mu.Lock()
	defer s.mu.Unlock()

	var file *os.File
	for _, r := range s.byName {
		if r.file != nil && r.file.Number() == number {
			file = r.file.Descriptor(false)
		}
	}
	if file == nil {
		_ = c.reply(shmwords.Reply{Errno: uint32(unix.ENOENT)}, nil)
		return
	}
	if !s.unread.Room(c.uid) {
		_ = c.reply(shmwords.Reply{Errno: uint32(unix.ETOOMANYREFS)}, nil)
		return
	}
	c.handed = c.reply(shmwords.Reply{Number: number}, file) == nil
	c.end() // under mu: Unread must count the reply before another client of this user asks for room
}
