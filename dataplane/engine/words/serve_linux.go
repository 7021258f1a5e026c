package words

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane"
	"github.com/flowtally/flowtally/dataplane/engine/catalogue"
	"github.com/flowtally/flowtally/dataplane/engine/live"
	shmwords "github.com/flowtally/flowtally/shm/words"
)

const (
	// mostClients bounds the connections. Each program with words keeps one; others need one for a moment only.
	mostClients = 2 * dataplane.MostWords
	// mostSilent bounds the connections of one user without a request yet. A proper client sends its request at once.
	mostSilent = 32
	// requestTimeout bounds the wait for the request of a client.
	requestTimeout = time.Second
)

// listen makes the socket, unless it exists. An instance without reserved words needs none.
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
		Path:   shmwords.Path(s.opts.Path),
		Mode:   s.opts.Mode,
		Group:  group,
		Serve:  s.accept,
		Logger: s.opts.Logger,
	})
	return err
}

// accept makes room for a client, and serves it on a new goroutine.
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

// makeRoom ends a silent connection if this user has too many of them, or if all users together have too many connections. In the
// second case the user with the most silent connections loses the oldest one, so that no user can keep another one out. makeRoom
// returns false if there is no silent connection to end. The caller holds mu.
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

	from := uid // the user to lose a connection
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

// serve replies to the request of a client. If the client gets words, serve returns when it has returned them or ended.
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
			s.awaitReturn(c, r)
		}
	default:
		_ = c.reply(shmwords.Reply{Errno: uint32(unix.EINVAL)}, nil)
	}
}
