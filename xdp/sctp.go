package xdp

import (
	"bufio"
	"os"
	"strings"

	"github.com/flowtally/flowtally/probe"
)

// HasSCTP reports whether the kernel has SCTP loaded. If the kernel does not tell (/proc mounted with subset=pid), it returns true.
// Note that any user can make the kernel load SCTP later, by opening such a socket.
func HasSCTP() bool {
	f, err := os.Open("/proc/net/protocols")
	if err != nil {
		return true
	}
	defer f.Close()

	for s := bufio.NewScanner(f); s.Scan(); {
		if name, _, _ := strings.Cut(s.Text(), " "); name == "SCTP" || name == "SCTPv6" {
			return true
		}
	}
	return false
}

// harmOfGeneric returns an error if generic XDP could crash the kernel: see Attachment.HarmsSCTP.
func (dp *Datapath) harmOfGeneric(dev device, o AttachOptions) error {
	if !dev.local() || o.GenericBesideSCTP || !dp.hasSCTP() {
		return nil
	}
	return &probe.UnsupportedError{
		Feature: "generic XDP",
		Object:  dev.name,
		Reason:  "the kernel has SCTP, and would crash on forwarding a stream of SCTP from this host behind generic XDP",
		Fix:     "use mode native or tcx for the interface, or a kernel without SCTP (modprobe -r sctp; echo install sctp /bin/false >/etc/modprobe.d/sctp.conf)",
	}
}
