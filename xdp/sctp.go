package xdp

import (
	"bufio"
	"os"
	"strings"

	"github.com/flowtally/flowtally/probe"
)

// HasSCTP reports whether the kernel has SCTP now. The kernel loads it when any user opens a socket of SCTP.
func HasSCTP() bool {
	f, err := os.Open("/proc/net/protocols")
	if err != nil {
		return false
	}
	defer f.Close()

	for s := bufio.NewScanner(f); s.Scan(); {
		if name, _, _ := strings.Cut(s.Text(), " "); name == "SCTP" || name == "SCTPv6" {
			return true
		}
	}
	return false
}

// harmsSCTP is the error of generic XDP on a device that receives buffers of SCTP, see Attachment.HarmsSCTP.
func harmsSCTP(ifname string) error {
	return &probe.UnsupportedError{
		Feature: "generic XDP", Object: ifname,
		Reason: "the kernel has SCTP, and crashes when it forwards a stream of SCTP that it has received by generic XDP from this host",
		Fix:    "use mode native or tcx for the interface, or a kernel without SCTP (modprobe -r sctp; echo install sctp /bin/false >/etc/modprobe.d/sctp.conf)",
	}
}
