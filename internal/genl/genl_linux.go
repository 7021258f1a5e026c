package genl

import (
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Family is a registered family of generic netlink. Its number differs from boot to boot, because the kernel numbers
// families as it loads their modules.
type Family struct {
	id      uint16
	version uint8
}

// Find asks the kernel for a family by its name. The error is unix.ENOENT if no such family is registered.
func Find(name string) (Family, error) {
	controller := Family{id: unix.GENL_ID_CTRL, version: nl.GENL_CTRL_VERSION}
	replies, err := controller.Execute(unix.CTRL_CMD_GETFAMILY, 0,
		nl.NewRtAttr(unix.CTRL_ATTR_FAMILY_NAME, nl.ZeroTerminated(name)))
	if err != nil {
		return Family{}, fmt.Errorf("asking for the netlink family %s: %w", name, err)
	}

	for _, reply := range replies {
		id := Attribute(reply, unix.CTRL_ATTR_FAMILY_ID)
		version := Attribute(reply, unix.CTRL_ATTR_VERSION)
		if len(id) >= 2 && len(version) >= 4 {
			return Family{
				id:      binary.NativeEndian.Uint16(id),
				version: uint8(binary.NativeEndian.Uint32(version)),
			}, nil
		}
	}
	return Family{}, fmt.Errorf("asking for the netlink family %s: the reply has no number", name)
}

// Execute sends one command and returns the attributes of each reply. The flags go into the netlink header, for example
// unix.NLM_F_ACK.
func (f Family) Execute(command uint8, flags int, attributes ...nl.NetlinkRequestData) ([][]byte, error) {
	req := nl.NewNetlinkRequest(int(f.id), flags)
	req.AddData(header{command, f.version})
	for _, a := range attributes {
		req.AddData(a)
	}

	replies, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return nil, err
	}
	for i, reply := range replies {
		replies[i] = reply[min(unix.GENL_HDRLEN, len(reply)):]
	}
	return replies, nil
}

// header is struct genlmsghdr (include/uapi/linux/genetlink.h): command, version, and a reserved word. The word must be
// 0, or families with strict checks refuse the command.
type header [unix.GENL_HDRLEN]byte

func (h header) Len() int          { return len(h) }
func (h header) Serialize() []byte { return h[:] }

// Attributes yields the type and value of each attribute in a message, or in a nested attribute. It stops at a malformed
// one.
//
// An attribute has a length, a type and a value, padded to 4 bytes. The kernel may omit the padding behind the last
// attribute. nl.ParseRouteAttr panics then, so we do not use it.
func Attributes(message []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(message) >= unix.SizeofNlAttr {
			n := int(binary.NativeEndian.Uint16(message))
			if n < unix.SizeofNlAttr || n > len(message) {
				return
			}

			typ := binary.NativeEndian.Uint16(message[2:]) & typeMask
			if !yield(typ, message[unix.SizeofNlAttr:n]) {
				return
			}
			message = message[min((n+3)&^3, len(message)):]
		}
	}
}

// typeMask is NLA_TYPE_MASK. It removes the flags (nested, byte order) from a type.
const typeMask = 0x3fff

// Attribute returns the value of the first attribute of a type, or nil.
func Attribute(message []byte, typ uint16) []byte {
	for t, value := range Attributes(message) {
		if t == typ {
			return value
		}
	}
	return nil
}
