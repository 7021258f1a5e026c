package words

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/catalogue"
	"github.com/flowtally/flowtally/dataplane/engine/live"
	"github.com/flowtally/flowtally/shm"
	shmwords "github.com/flowtally/flowtally/shm/words"
)

const (
	// mostClients bounds the connections: each program that has words has one, and others have one for a moment.
	mostClients = 2 * dataplane.MaxWords
	// mostSilent bounds the connections of one user that have sent no request yet. One that is served sends it at once.
	mostSilent = 32
	// requestTimeout bounds the wait for the request of a client.
	requestTimeout = time.Second
)

// client is a connection to the socket NAME.words.
type client struct {
	f      *os.File
	once   sync.Once
	uid    uint32
	unread *live.Unread

	// Guarded by Set.mu.
	turn   uint64 // when it came
	silent bool   // it has sent no request yet
	handed bool   // it was sent a descriptor
}

// end ends the connection. A reply with a descriptor counts as unread until the client receives it.
func (c *client) end() {
	c.once.Do(func() {
		if c.handed {
			if conn, err := c.descriptor(); err == nil {
				c.unread.Keep(c.uid, conn)
			}
		}
		_ = c.f.Close()
	})
}

// listen makes the socket when words are reserved first.
func (s *Set) listen() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return dataplane.ErrClosed
	case s.socket != nil:
		return nil
	}
	group, err := catalogue.GroupOf("words_group", s.opts.Group)
	if err != nil {
		return err
	}
	s.socket, err = live.Listen(live.Options{
		Path: shmwords.Path(s.opts.Path), Mode: s.opts.Mode, Group: group, Serve: s.accept, Logger: s.opts.Logger,
	})
	return err
}

// accept serves a client on a goroutine of its own, and makes room for it.
func (s *Set) accept(fd int) {
	c := &client{f: os.NewFile(uintptr(fd), "client"), silent: true, unread: &s.unread}
	peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		c.end()
		return
	}
	c.uid = peer.Uid
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || !s.makeRoom(c.uid) {
		c.end()
		return
	}
	s.turns++
	c.turn = s.turns
	s.clients[c] = true
	s.serving.Go(func() {
		s.serve(c)
		s.mu.Lock()
		delete(s.clients, c)
		s.mu.Unlock()
		c.end()
	})
}

// makeRoom ends a silent connection where the user has too many of them, or where all users together have. Connections
// of other users never keep a user out: of all users, the one with the most silent connections loses the oldest of
// them. It returns false if there is no room all the same. It is called with mu held.
func (s *Set) makeRoom(uid uint32) bool {
	silent := make(map[uint32]int)
	oldest := make(map[uint32]*client)
	for c := range s.clients {
		if !c.silent {
			continue
		}
		silent[c.uid]++
		if o := oldest[c.uid]; o == nil || c.turn < o.turn {
			oldest[c.uid] = c
		}
	}
	from := uid
	if silent[uid] < mostSilent {
		if len(s.clients) < mostClients {
			return true
		}
		for u, n := range silent {
			if n > silent[from] || n == silent[from] && (oldest[from] == nil || oldest[u].turn < oldest[from].turn) {
				from = u
			}
		}
	}
	c := oldest[from]
	if c == nil {
		return false
	}
	delete(s.clients, c)
	c.end()
	return true
}

// serve replies to the request of a client, and waits for the end of a program that has words.
func (s *Set) serve(c *client) {
	if err := c.f.SetDeadline(time.Now().Add(requestTimeout)); err != nil {
		return
	}
	request, err := c.receive()
	s.mu.Lock()
	c.silent = false
	s.mu.Unlock()
	if err != nil {
		return
	}
	switch request.Kind {
	case shmwords.ReadWords:
		s.read(c, request.Number)
	case shmwords.TakeWords:
		if r := s.take(c, request); r != nil {
			s.hold(c, r)
		}
	default:
		_ = c.reply(shmwords.Reply{Errno: uint32(unix.EINVAL)}, nil)
	}
}

func (c *client) receive() (shmwords.Request, error) {
	b := make([]byte, 256)
	n, err := c.f.Read(b)
	if err != nil {
		return shmwords.Request{}, err
	}
	return shmwords.ParseRequest(b[:n])
}

// reply sends a reply, with a descriptor of f if there is one.
func (c *client) reply(r shmwords.Reply, f *os.File) error {
	raw, err := c.f.SyscallConn()
	if err != nil {
		return err
	}
	var rights []byte
	if f != nil {
		from, err := f.SyscallConn()
		if err != nil {
			return err
		}
		if err := from.Control(func(fd uintptr) { rights = unix.UnixRights(int(fd)); err = c.send(raw, r.Message(), rights) }); err != nil {
			return err
		}
		return err
	}
	return c.send(raw, r.Message(), nil)
}

type rawConn interface {
	Write(func(fd uintptr) bool) error
}

func (c *client) send(raw rawConn, message, rights []byte) (failed error) {
	err := raw.Write(func(fd uintptr) bool {
		failed = unix.Sendmsg(int(fd), message, rights, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		return !errors.Is(failed, unix.EAGAIN)
	})
	return errors.Join(err, failed)
}

// read hands out a words file for reading.
func (s *Set) read(c *client, number uint64) {
	s.mu.Lock()
	var file *os.File
	for _, r := range s.byName {
		if r.file != nil && r.file.Number() == number {
			file = r.file.Descriptor(false)
		}
	}
	if file == nil {
		s.mu.Unlock()
		_ = c.reply(shmwords.Reply{Errno: uint32(unix.ENOENT)}, nil)
		return
	}
	defer s.mu.Unlock() // the reply does not block: it fits the empty buffer of a new connection
	if !s.unread.Room(c.uid) {
		_ = c.reply(shmwords.Reply{Errno: uint32(unix.ETOOMANYREFS)}, nil)
		return
	}
	c.handed = c.reply(shmwords.Reply{Number: number}, file) == nil
	c.end() // with mu held: the reply counts before another client of the user asks for room
}

// descriptor returns a duplicate of the connection's descriptor.
func (c *client) descriptor() (fd int, err error) {
	raw, err := c.f.SyscallConn()
	if err != nil {
		return -1, err
	}
	var failed error
	err = raw.Control(func(of uintptr) { fd, failed = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(err, failed)
}

// take gives reserved words to a client. It returns nil if the client has got none.
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
	// A device of the last program may write until the kernel has destroyed its objects.
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
	if err := c.reply(shmwords.Reply{Number: r.file.Number(), Index: r.handle.Index, Generation: r.handle.Generation}, r.file.Descriptor(true)); err != nil {
		r.state = dataplane.WordsFree // prepare has counted the discontinuity of the program before
		s.setState(r, dataplane.WordsFree, "a program ended before it had the words", s.withdraw(r))
		return nil
	}
	c.handed = true
	r.taker = c
	s.setState(r, dataplane.WordsTaken, "a program has taken the words", false)
	return r
}

// prepare gives the counter words in a new file, where its total goes on. It is called with mu held.
func (s *Set) prepare(r *reservation, limit uint64) error {
	s.withdraw(r)
	seg, err := s.opts.Mirror.DeviceSegment(s.slots)
	if errors.Is(err, shm.ErrFull) { // queue pairs have made it
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
	r.taken.Store(&taking{slot: slot, asked: limit, limit: limit, from: total})
	return nil
}

// hold waits until the program that has the words gives them back, or ends.
func (s *Set) hold(c *client, r *reservation) {
	returned := false
	if c.f.SetDeadline(time.Time{}) == nil {
		request, err := c.receive()
		returned = err == nil && request.Kind == shmwords.ReturnWords
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.taker != c { // released meanwhile
		return
	}
	r.taker = nil
	switch {
	case s.closed: // the next process of the instance goes on with the total
	case returned:
		uncounted := s.withdraw(r)
		s.setState(r, dataplane.WordsFree, "the program has given the words back", uncounted)
	default:
		s.setState(r, dataplane.WordsAbandoned, "the program ended without giving the words back", true)
	}
}
