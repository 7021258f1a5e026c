package dispatcher

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/internal/trust"
)

// hook is the XDP hook of an interface. It refers to the network namespace in which it was made.
type hook struct {
	grace   func() error // waits for an RCU grace period
	ifindex int
	socket  *nl.NetlinkSocket
}

// newHook returns the hook of an interface in the network namespace of the calling thread.
func newHook(ifindex int, grace func() error) (*hook, error) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening a socket for the hook: %w", err)
	}
	return &hook{grace: grace, ifindex: ifindex, socket: s}, nil
}

// Close releases the resources of h. The program on the hook stays.
func (h *hook) Close() error {
	h.socket.Close()
	return nil
}

func (h *hook) request(kind, flags int) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(kind, flags)
	r.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Seq: r.Seq, Socket: h.socket}}
	m := nl.NewIfInfomsg(unix.AF_UNSPEC)
	m.Index = int32(h.ifindex)
	r.AddData(m)
	return r
}

// Values of IFLA_XDP_ATTACHED.
const (
	attachedNative  = 1
	attachedGeneric = 2
)

// attached asks the kernel for the program on the hook.
func (h *hook) attached() (attachment, error) {
	replies, err := h.request(unix.RTM_GETLINK, unix.NLM_F_ACK).Execute(unix.NETLINK_ROUTE, 0)
	if err != nil {
		return attachment{}, fmt.Errorf("asking for interface %d: %w", h.ifindex, err)
	}
	a, err := attachmentOf(replies)
	if err != nil {
		return attachment{}, fmt.Errorf("asking for interface %d: %w", h.ifindex, err)
	}
	return a, nil
}

// errNoReply: the kernel acknowledged a request and sent no answer.
var errNoReply = errors.New("the kernel sent no answer")

// attachmentOf reads the replies to RTM_GETLINK.
func attachmentOf(replies [][]byte) (attachment, error) {
	if len(replies) == 0 {
		return attachment{}, errNoReply
	}
	l, err := netlink.LinkDeserialize(nil, replies[0])
	if err != nil {
		return attachment{}, err
	}

	a := attachment{ifname: l.Attrs().Name}
	x := l.Attrs().Xdp
	if x == nil {
		return a, nil
	}
	a.program = ebpf.ProgramID(x.ProgId)
	switch x.AttachMode {
	case attachedNative:
		a.mode = unix.XDP_FLAGS_DRV_MODE
	case attachedGeneric:
		a.mode = unix.XDP_FLAGS_SKB_MODE
	}
	return a, nil
}

// exchange replaces old by fresh. It fails if the hook holds another program by now. A nil fresh frees the hook.
func (h *hook) exchange(fresh *ebpf.Program, old *dispatcher) error {
	fd := int32(-1)
	if fresh != nil {
		fd = int32(fresh.FD())
	}
	number := func(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }
	x := nl.NewRtAttr(unix.IFLA_XDP|unix.NLA_F_NESTED, nil)
	x.AddRtAttr(unix.IFLA_XDP_FD, number(uint32(fd)))
	x.AddRtAttr(unix.IFLA_XDP_FLAGS, number(old.mode|unix.XDP_FLAGS_REPLACE))
	x.AddRtAttr(unix.IFLA_XDP_EXPECTED_FD, number(uint32(old.program.FD())))
	r := h.request(unix.RTM_SETLINK, unix.NLM_F_ACK)
	r.AddData(x)
	if _, err := r.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return fmt.Errorf("exchanging the dispatcher of interface %d: %w", h.ifindex, err)
	}
	return nil
}

// openTrusted opens the directory of the pins. It refuses if anybody but root can write to it.
func openTrusted() (*os.File, error) {
	path, why, err := trust.Open(Dir, func(uid uint32) bool { return uid == 0 })
	if err == nil && why != "" {
		err = fmt.Errorf("%s", why)
	}
	if err != nil {
		return nil, fmt.Errorf("opening libxdp's pins: %w", err)
	}
	defer path.Close()
	fd, err := unix.Openat(int(path.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening libxdp's pins: %w", err)
	}
	return os.NewFile(uintptr(fd), Dir), nil
}

func flock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }
