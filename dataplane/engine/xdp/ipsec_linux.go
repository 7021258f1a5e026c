package xdp

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/flowtally/flowtally/dataplane/engine/backend"
	"github.com/flowtally/flowtally/internal/genl"
)

// kernelPolicies lists the IPsec policies of a network namespace.
type kernelPolicies struct{ ns *backend.Netns }

func newPolicies(ns *backend.Netns) policies { return kernelPolicies{ns} }

// available implements policies. Opening a socket of NETLINK_XFRM would load xfrm_user. Instead we look into the kernel's list of
// netlink sockets: built in or as a module, xfrm_user opens one in each namespace.
func (p kernelPolicies) available() (loaded bool) {
	err := p.ns.Do(func() error {
		f, err := os.Open("/proc/thread-self/net/netlink")
		if err != nil {
			return err
		}
		defer f.Close()

		s := bufio.NewScanner(f)
		for s.Scan() && !loaded {
			fields := strings.Fields(s.Text()) // sk, protocol, port, …
			loaded = len(fields) > 1 && fields[1] == strconv.Itoa(unix.NETLINK_XFRM)
		}
		return nil
	})
	return loaded && err == nil
}

// watch implements policies.
func (p kernelPolicies) watch() (policyChanges, error) {
	var s policySocket
	err := p.ns.Do(func() (err error) {
		s, err = openPolicySocket(1 << (nl.XFRMNLGRP_POLICY - 1))
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// tunnel implements policies. It stops at the first policy of tunnel mode: the condition needs only one.
func (p kernelPolicies) tunnel() (found string, err error) {
	err = p.ns.Do(func() error {
		s, err := openPolicySocket(0)
		if err != nil {
			return err
		}
		defer s.Close()

		found, err = s.findTunnel()
		return err
	})
	return found, err
}

// policySocket is a socket of NETLINK_XFRM.
type policySocket int

// openPolicySocket opens a socket for the messages of some multicast groups. It needs CAP_NET_ADMIN.
func openPolicySocket(groups uint32) (policySocket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_XFRM)
	if err != nil {
		return -1, fmt.Errorf("opening a socket: %w", err)
	}
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups})
	if err == nil {
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5})
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("binding a socket: %w", err)
	}
	return policySocket(fd), nil
}

// Close implements io.Closer.
func (s policySocket) Close() error { return unix.Close(int(s)) }

// seen implements policyChanges. Any answer but EAGAIN is a change, also ENOBUFS: the kernel had to drop a message.
func (s policySocket) seen() bool {
	var head [unix.SizeofNlMsghdr]byte
	_, _, err := unix.Recvfrom(int(s), head[:], unix.MSG_DONTWAIT|unix.MSG_PEEK)
	return !errors.Is(err, unix.EAGAIN)
}

// findTunnel lists the policies until one lets packets of a tunnel in.
func (s policySocket) findTunnel() (string, error) {
	req := nl.NewNetlinkRequest(nl.XFRM_MSG_GETPOLICY, unix.NLM_F_DUMP)
	req.AddData(&nl.XfrmUserpolicyId{})
	if err := unix.Sendto(int(s), req.Serialize(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return "", fmt.Errorf("asking for the policies: %w", err)
	}

	buf := make([]byte, nl.RECEIVE_BUFFER_SIZE)
	for {
		n, _, err := unix.Recvfrom(int(s), buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("reading policies: %w", err)
		}
		messages, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			return "", fmt.Errorf("reading policies: %w", err)
		}

		for _, m := range messages {
			switch m.Header.Type {
			case unix.NLMSG_DONE:
				return "", nil
			case unix.NLMSG_ERROR:
				return "", netlinkError(m.Data)
			case nl.XFRM_MSG_NEWPOLICY:
				if text := tunnelPolicy(m.Data); text != "" {
					return text, nil
				}
			}
		}
	}
}

// netlinkError returns the error in a message of type NLMSG_ERROR.
func netlinkError(data []byte) error {
	if len(data) < 4 {
		return fmt.Errorf("reading policies: an error of %d bytes", len(data))
	}
	return fmt.Errorf("reading policies: %w", unix.Errno(-int32(nl.NativeEndian().Uint32(data))))
}

// Directions and modes of a policy (linux/xfrm.h).
const (
	policyIn       = 0
	policyForward  = 2
	policyOfSocket = 3 // of a receiving socket

	modeTunnel = 1
	modeIPTFS  = 5 // Linux 6.14
)

// tunnelPolicy returns the selector of a policy as "ip xfrm policy" prints it, or "" if the policy lets in no packets of a tunnel.
// It leaves out policies with an interface id, because their decrypted packets arrive at an xfrm interface.
func tunnelPolicy(data []byte) string {
	if len(data) < nl.SizeofXfrmUserpolicyInfo {
		return ""
	}
	p := nl.DeserializeXfrmUserpolicyInfo(data)
	direction := map[uint8]string{policyIn: "in", policyForward: "fwd", policyOfSocket: "socket in"}[p.Dir]
	if direction == "" {
		return ""
	}

	attributes := data[nl.SizeofXfrmUserpolicyInfo:]
	if id := genl.Attribute(attributes, nl.XFRMA_IF_ID); len(id) == 4 && nl.NativeEndian().Uint32(id) != 0 {
		return ""
	}
	for list := genl.Attribute(attributes, nl.XFRMA_TMPL); len(list) >= nl.SizeofXfrmUserTmpl; list = list[nl.SizeofXfrmUserTmpl:] {
		if mode := nl.DeserializeXfrmUserTmpl(list).Mode; mode == modeTunnel || mode == modeIPTFS {
			src := p.Sel.Saddr.ToIPNet(p.Sel.PrefixlenS, p.Sel.Family)
			dst := p.Sel.Daddr.ToIPNet(p.Sel.PrefixlenD, p.Sel.Family)
			return fmt.Sprintf("src %s dst %s dir %s", src, dst, direction)
		}
	}
	return ""
}
