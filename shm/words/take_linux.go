package words

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/edsrzf/mmap-go"
	"golang.org/x/sys/unix"
)

// fileSeals make the length of a words file unchangeable.
const fileSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// File is a words file, open for its writer. NewFile makes one.
type File struct {
	number uint64
	f      *os.File // for writing
	r      *os.File // for reading
	m      *Mapping
}

// NewFile makes a words file with both words 0.
func NewFile() (_ *File, err error) {
	fail := func(doing string, err error) (*File, error) {
		return nil, fmt.Errorf("words file: %s: %w", doing, err)
	}

	fd, err := unix.MemfdCreate("flowtally-words", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return fail("making it", err)
	}
	f := &File{f: os.NewFile(uintptr(fd), "words")}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()

	// A reader gets a read-only descriptor. Without the mode it could open the file again through /proc, for writing.
	if err := errors.Join(f.f.Truncate(fileSize), f.f.Chmod(0o400)); err != nil {
		return fail("setting its length and mode", err)
	}
	if err := uninterrupted(func() error { return unix.Fallocate(fd, 0, 0, fileSize) }); err != nil {
		return fail("reserving its memory", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, fileSeals); err != nil {
		return fail("sealing its length", err)
	}
	if f.r, err = os.Open(fmt.Sprintf("/proc/self/fd/%d", fd)); err != nil {
		return fail("opening it for readers", err)
	}
	if f.m, err = mapFile(fd, true); err != nil {
		return fail("mapping it", err)
	}

	var b [8]byte
	for f.number == 0 {
		_, _ = rand.Read(b[:])
		f.number = binary.NativeEndian.Uint64(b[:])
	}
	return f, nil
}

// Number returns the random number that identifies the file in the mirror.
func (f *File) Number() uint64 { return f.number }

// Descriptor returns a descriptor of the file. The File still owns it: do not close it.
func (f *File) Descriptor(writable bool) *os.File {
	if writable {
		return f.f
	}
	return f.r
}

// Words returns the words of the file.
func (f *File) Words() *[2]uint64 { return f.m.Words }

// Close closes the descriptors. The words stay mapped as long as something refers to the File. Idempotent.
func (f *File) Close() {
	if f.f != nil {
		_ = f.f.Close()
	}
	if f.r != nil {
		_ = f.r.Close()
	}
}

// mapFile maps a descriptor received from the socket. It refuses a file whose length is not sealed: somebody could cut it short,
// and an access to the mapping would fault.
func mapFile(fd int, writable bool) (*Mapping, error) {
	const lengthSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&lengthSeals != lengthSeals {
		return nil, fmt.Errorf("the descriptor is of a file that could be cut short: %w", ErrFormat)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Size != fileSize {
		return nil, fmt.Errorf("the file has %d bytes, where %d belong: %w", st.Size, fileSize, ErrFormat)
	}

	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicating the descriptor: %w", err)
	}
	f := os.NewFile(uintptr(own), "words")
	defer f.Close()
	prot := mmap.RDONLY
	if writable {
		prot = mmap.RDWR
	}
	b, err := mmap.MapRegion(f, fileSize, prot, 0, 0)
	if err != nil {
		return nil, fmt.Errorf("mapping the words: %w", err)
	}
	return newMapping(b), nil
}

// connection is the connection to the socket. A process has its words until the connection ends.
type connection struct {
	mu sync.Mutex
	fd int // -1: closed
}

// askOnce sends one request and returns the reply. If the reply has no errno, file is the descriptor that came with it. The
// caller must close it.
func askOnce(fd int, request Request) (reply Reply, file int, err error) {
	if err := send(fd, request); err != nil {
		return reply, -1, err
	}
	message, fds, err := Receive(fd, messageSize)
	if err == nil {
		reply, err = checkReply(message, len(fds))
	}
	if err != nil || reply.Errno != 0 {
		CloseAll(fds)
		return reply, -1, err
	}
	return reply, fds[0], nil
}

// send sends a request.
func send(fd int, request Request) error {
	return uninterrupted(func() error {
		return unix.Sendmsg(fd, request.Message(), nil, nil, unix.MSG_NOSIGNAL)
	})
}

// checkReply decodes a reply that came with that number of descriptors. There must be one, or an errno and none.
func checkReply(message []byte, descriptors int) (Reply, error) {
	if len(message) == 0 {
		return Reply{}, fmt.Errorf("the other end closed the connection: %w", ErrFormat)
	}
	reply, err := parseReply(message)
	if err != nil {
		return reply, err
	}
	if (descriptors == 1) != (reply.Errno == 0) {
		return reply, fmt.Errorf("%d descriptors with errno %d: %w", descriptors, reply.Errno, ErrFormat)
	}
	return reply, nil
}

// hint returns the next step for an error of Connect.
func hint(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return ": the instance does not run, or has no reserved words: start it, and name the counter under words in its configuration, or reserve it with flowtally queue-pairs reserve"
	case errors.Is(err, fs.ErrPermission):
		return ": this process may not connect: set mirror.words_mode, and join the group mirror.words_group"
	}
	return ""
}

// Ask asks the socket at path for the words file of that number, and maps it read-only. trusts is as in Connect.
func Ask(path string, number uint64, trusts func(uid uint32) error) (*Mapping, error) {
	fail := func(doing string, err error) (*Mapping, error) {
		return nil, fmt.Errorf("%s: %s: %w", path, doing, err)
	}
	fd, doing, err := Connect(path, trusts)
	if err != nil {
		return fail(doing, fmt.Errorf("%w%s", err, hint(err)))
	}
	defer unix.Close(fd)

	reply, file, err := askOnce(fd, Request{Kind: ReadWords, Number: number})
	if err != nil {
		return fail("asking for a words file", err)
	}
	if reply.Errno != 0 {
		return fail("asking for a words file", unix.Errno(reply.Errno))
	}
	defer unix.Close(file)
	m, err := mapFile(file, false)
	if err != nil {
		return fail("mapping a words file", err)
	}
	return m, nil
}

// Options configure Take. The zero value suits a program that counts by itself, without a device.
type Options struct {
	// Limit is the largest value of a word, after which it wraps around to 0. If a device writes the words, this is max_value
	// of struct ibv_comp_cntr_caps. It must be at least LeastLimit; 0 means 2^64 - 1.
	Limit uint64
	// Owners are the ids of further users, besides root and the process's own, whose mirror may have the words.
	Owners []uint32
}

// trusts returns an error unless the mirror of user uid may have the words.
func (o Options) trusts(uid uint32) error {
	if uid == 0 || uid == uint32(os.Geteuid()) || slices.Contains(o.Owners, uid) {
		return nil
	}
	return fmt.Errorf("the other end belongs to user %d, not to root or this process's user: name that user in Owners: %w", uid, fs.ErrPermission)
}

// Take takes the words reserved for the counter of that name in the mirror at path. They belong to this process until it calls
// Close or ends. A process that ends without Close abandons its words: the counter keeps their last values, and another process
// can take new words of the counter after a cool-down.
//
// ErrNotFound: no words of that name are reserved. ErrInUse: another process has them, or they cool down.
func Take(path, name string, o Options) (*Words, error) {
	socket := Path(path)
	fail := func(doing string, err error) (*Words, error) {
		return nil, fmt.Errorf("%s: words of %q: %s: %w", socket, name, doing, err)
	}
	if o.Limit = cmp.Or(o.Limit, math.MaxUint64); o.Limit < LeastLimit {
		return fail("taking them", fmt.Errorf("words that go on at 0 past %d do so between two poll cycles: %w", o.Limit, ErrInvalid))
	}
	if name == "" || len(name) > longestName || strings.Contains(name, "\x00") {
		return fail("taking them", fmt.Errorf("a name has 1 to %d bytes, and no NUL: %w", longestName, ErrInvalid))
	}

	fd, doing, err := Connect(socket, o.trusts)
	if err != nil {
		return fail(doing, fmt.Errorf("%w%s", err, hint(err)))
	}
	reply, file, err := askOnce(fd, Request{Kind: TakeWords, Name: name, Limit: o.Limit})
	if err == nil && reply.Errno != 0 {
		err = takeError(reply)
	}
	w := &Words{reply: reply, limit: o.Limit, conn: connection{fd: fd}}
	if err != nil {
		_ = w.Close() // return the words, because the instance may have given them to us before the error
		return fail("taking them", err)
	}

	defer unix.Close(file)
	if w.m, err = mapFile(file, true); err != nil {
		_ = w.Close()
		return fail("mapping them", err)
	}
	return w, nil
}

// takeError returns the error for the errno in a reply to TakeWords.
func takeError(reply Reply) error {
	switch errno := unix.Errno(reply.Errno); errno {
	case unix.ENOENT:
		return fmt.Errorf("none are reserved: %w", ErrNotFound)
	case unix.EBUSY:
		return fmt.Errorf("a process has them: %w", ErrInUse)
	case unix.EAGAIN:
		return fmt.Errorf("they were abandoned, and cool down for %v more: %w", time.Duration(reply.Wait).Round(time.Millisecond), ErrInUse)
	case unix.ENOSPC:
		return errors.New("the device segment has no free slot: release words, or restart the instance")
	case unix.ETOOMANYREFS:
		return errors.New("processes of this user have asked for words and do not receive the replies: end them")
	case unix.EINVAL:
		return fmt.Errorf("the request: %w", ErrInvalid)
	default:
		return errno
	}
}

// Served reports whether the instance still reads the words. It returns false once the instance has ended or released them.
func (w *Words) Served() bool {
	w.conn.mu.Lock()
	defer w.conn.mu.Unlock()
	if w.conn.fd < 0 {
		return false
	}
	// The instance sends nothing more. On an open connection there is nothing to receive, on a closed one its end.
	var b [1]byte
	_, _, err := unix.Recvfrom(w.conn.fd, b[:], unix.MSG_DONTWAIT|unix.MSG_PEEK)
	return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)
}

// Close returns the words to the instance. The counter keeps its total, and another process can take words of it. A device must
// not write to the words any more, so destroy its counters first. The words stay mapped as long as something refers to the
// Words. Idempotent.
func (w *Words) Close() error {
	w.conn.mu.Lock()
	defer w.conn.mu.Unlock()
	if w.conn.fd < 0 {
		return nil
	}
	fd := w.conn.fd
	w.conn.fd = -1
	defer unix.Close(fd)

	err := send(fd, Request{Kind: ReturnWords})
	if err == nil { // wait until the instance closes the connection: it has read the last values then
		err = uninterrupted(func() error {
			_, _, err := unix.Recvfrom(fd, make([]byte, 1), 0)
			return err
		})
	}
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return nil // the instance has ended
	}
	return err
}
