// Package live serves the two sockets beside a mirror. Each hands out descriptors and nothing else. NAME.live hands out the memory
// in which the kernel counts: docs/mirror-format.md specifies the message, and shm.Reader.Live receives it. NAME.words hands out
// reserved words; package words serves its clients.
package live

import (
	"io/fs"
	"log/slog"

	"github.com/flowtally/flowtally/shm"
)

// Options of a Socket.
type Options struct {
	Path string      // of the socket: shm.LivePath of the mirror's path
	Map  shm.LiveMap // what to hand out; Listen duplicates its descriptor

	// Serve serves a client, whose descriptor is non-blocking. It must close the descriptor in the end, and must return
	// soon, because the next client waits. nil means to send the descriptor of Map.
	Serve func(client int)

	Mode   fs.FileMode // of the socket; a process that may write to it may connect
	Group  int         // of the socket; 0: the process's own
	Logger *slog.Logger
}
