// Package live serves the socket NAME.live beside a mirror, which hands out the memory in which the kernel counts. A reader
// gets one descriptor from it, and nothing else. docs/live.md specifies the message; shm.Reader.Live receives it.
package live

import (
	"io/fs"
	"log/slog"

	"github.com/flowtally/flowtally/shm"
)

// Options of a Socket.
type Options struct {
	Path   string      // of the socket: shm.LivePath of the mirror's path
	Map    shm.LiveMap // Listen duplicates its descriptor
	Mode   fs.FileMode // the right to write is the right to connect
	Group  int         // of the socket; 0: the process's own
	Logger *slog.Logger
}
