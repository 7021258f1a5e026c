package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/shm/words"
)

// dialLive asks the socket at path for its map, and maps it read-only.
func dialLive(path string, o ReaderOptions) (*liveFile, error) {
	fail := func(doing string, err error) (*liveFile, error) {
		next := ""
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
			next = ": its writer hands out no descriptor: set mirror.live_mode"
		case errors.Is(err, fs.ErrPermission):
			next = ": this process may not connect: join the group mirror.live_group"
		}
		return nil, fmt.Errorf("%s: %s: %w: %w%s", path, doing, err, ErrNoLive, next)
	}
	fd, doing, err := words.Connect(path, o.trustsPeer)
	if err != nil {
		return fail(doing, err)
	}
	defer unix.Close(fd)

	f, err := receiveLive(fd)
	if err != nil {
		return fail("receiving a descriptor", err)
	}
	return f, nil
}

// receiveLive receives the message of a connected socket, and maps the descriptor that comes with it.
func receiveLive(fd int) (*liveFile, error) {
	message, fds, err := words.Receive(fd, liveSize)
	defer words.CloseAll(fds)

	n := len(message)
	switch {
	case err != nil:
		return nil, err
	case n == 0 && len(fds) == 0:
		return nil, fmt.Errorf("the other end closed the connection: %w", ErrFormat)
	case n != liveSize || len(fds) != 1:
		return nil, fmt.Errorf("%d bytes and %d descriptors, where %d and 1 belong: %w", n, len(fds), liveSize, ErrFormat)
	}
	return mapLive(message, fds[0])
}

// mapLive maps the map that a message describes. The kernel refuses a mapping that is longer than the map's value, and
// keeps all of the value in memory as long as it is mapped. So no number of the message and none of an entry can make a
// reader fault.
func mapLive(message []byte, fd int) (*liveFile, error) {
	u32 := func(at int) uint32 { return binary.NativeEndian.Uint32(message[at:]) }
	cpus, counters := uint64(u32(lvmCPUs)), uint64(u32(lvmCounters))
	stride := binary.NativeEndian.Uint64(message[lvmStride:])
	switch {
	case string(message[:len(liveMagic)]) != liveMagic || u32(lvmByteOrder) != byteOrder:
		return nil, fmt.Errorf("the socket does not send messages of a mirror's writer on this machine: %w", ErrFormat)
	case u32(lvmVersion) != liveVersion:
		return nil, fmt.Errorf("the writer sends version %d of the live view, and this reader needs %d: use one release for both: %w", u32(lvmVersion), liveVersion, ErrFormat)
	case u32(lvmMap) == 0 || cpus == 0 || cpus > 1<<16 || counters == 0 || counters > maxLiveCounters || stride < 16*counters ||
		stride > 16*maxLiveCounters || stride%8 != 0 || cpus*stride > 1<<40:
		return nil, fmt.Errorf("map %d of %d CPUs, %d counters and %d bytes for each CPU cannot be: %w", u32(lvmMap), cpus, counters, stride, ErrFormat)
	}

	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != 0 { // a file could be cut short; a map has no type of file
		return nil, fmt.Errorf("the descriptor is of a file, not of a map: %w", ErrFormat)
	}

	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicating the descriptor: %w", err)
	}
	file := os.NewFile(uintptr(own), "map")
	defer file.Close()
	page := uint64(os.Getpagesize())
	length := (cpus*stride + 8 + page - 1) / page * page // the slots and the epoch, in whole pages
	m, err := mapFile(file, 0, length, false)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, ErrFormat)
	}
	return &liveFile{
		m:        m,
		id:       u32(lvmMap),
		counters: int(counters),
		stride:   int(stride / 8),
		words:    overlay[uint64](m.b, 0, uint32(cpus*stride/8)),
		epoch:    &overlay[uint64](m.b, cpus*stride, 1)[0],
	}, nil
}
