// Package live serves the sockets beside a mirror, which hand out descriptors and nothing else. NAME.live hands out the
// memory in which the kernel counts: docs/mirror-format.md specifies the message, and shm.Reader.Live receives it. NAME.words
// hands out reserved words: package words serves its clients.
package live

import (
	"io/fs"
	"log/slog"

	"github.com/flowtally/flowtally/shm"
)

// Options of a Socket.
type Options struct {
	Path string      // of the socket: shm.LivePath of the mirror's path
	Map  shm.LiveMap // Listen duplicates its descriptor
	// Serve has a client from now on, and closes its descriptor, which does not block. It returns soon. nil: each client
	// gets the descriptor of Map.
	Serve  func(client int)
	Mode   fs.FileMode // the right to write is the right to connect
	Group  int         // of the socket; 0: the process's own
	Logger *slog.Logger
}
