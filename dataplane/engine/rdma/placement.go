package rdma

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/flowtally/flowtally/probe"
)

// netClass is the directory of the network interfaces in sysfs.
const netClass = "/sys/class/net"

// host finds out how interfaces, functions and e-switches belong together. Tests have a sysfs of their own.
type host struct {
	net string // netClass
	// eswitch reports whether the e-switch of a function is in switchdev mode. bus and device are devlink's names.
	eswitch func(bus, device string) (bool, error)
}

// thisHost is the kernel's view in the calling thread's network namespace.
var thisHost = host{net: netClass, eswitch: switchdevByNetlink}

// placePorts finds the interface whose packets a port counts, on hosts with bonds, and refuses ports on which we must not count.
// sysfs is the directory of the device.
//
// The GID table of a bonded port may name the bond, the slave or both. What the port counts depends on RoCE LAG. Without it,
// each device counts the packets of one slave: the interface of its own function. With RoCE LAG, one device counts the packets
// of all slaves, and its interface is the bond. We recognize RoCE LAG by a slave with the same driver, but without a device.
func (h host) placePorts(ports []portInfo, sysfs string) {
	for i := range ports {
		p := &ports[i]
		h.placePort(p, sysfs)
		for _, name := range append([]string{p.netdev}, p.slaves...) {
			p.refused = cmp.Or(p.refused, h.switchdevReason(name))
		}
	}
}

// placePort is placePorts for one port, without the refusals.
func (h host) placePort(p *portInfo, sysfs string) {
	bond := p.netdev
	slaves := slavesOf(h.net, bond)
	if len(slaves) == 0 {
		bond = base(filepath.Join(h.net, p.netdev, "master"))
		slaves = slavesOf(h.net, bond)
	}

	withoutDevice := func(slave string) bool { // with the port's driver
		function := filepath.Join(h.net, slave, "device")
		return !exists(filepath.Join(function, "infiniband")) && p.driver != "" && base(filepath.Join(function, "driver")) == p.driver
	}
	if slices.ContainsFunc(slaves, withoutDevice) { // RoCE LAG
		p.netdev = bond
		p.slaves = slaves
		return
	}

	ofDevice := func(slave string) bool { return exists(filepath.Join(sysfs, "device", "net", slave)) }
	if own := slices.IndexFunc(slaves, ofDevice); own >= 0 && p.netdev == bond {
		p.netdev = slaves[own]
	}
}

// slavesOf returns the slaves of a bond, or nil if the interface is no bond.
func slavesOf(net, name string) []string {
	if name == "" {
		return nil
	}
	b, err := os.ReadFile(filepath.Join(net, name, "bonding", "slaves"))
	if err != nil {
		return nil
	}
	return strings.Fields(string(b))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// base returns the last element of the target of a link, or "".
func base(link string) string {
	to, err := os.Readlink(link)
	if err != nil {
		return ""
	}
	return filepath.Base(to)
}

// representor is the phys_port_name of the representor of a function: a physical function, a virtual function or a
// subfunction, of an embedded CPU's controller or of the host.
var representor = regexp.MustCompile(`^(c[0-9]+)?pf[0-9]+((vf|sf)[0-9]+)?$`)

// switchdevReason returns why we must not count on an interface of a NIC in switchdev mode, or nil. We have to ask for the mode:
// since Linux 5.10, mlx5 has a phys_switch_id on every function that manages an e-switch.
func (h host) switchdevReason(name string) error {
	id := trimmed(filepath.Join(h.net, name, "phys_switch_id"))
	if id == "" {
		return nil
	}
	port := trimmed(filepath.Join(h.net, name, "phys_port_name"))
	e := &probe.UnsupportedError{Feature: "counting in hardware", Object: name}
	if representor.MatchString(port) {
		e.Reason = fmt.Sprintf("it is a representor (phys_port_name %s): its packets pass the e-switch, and no test has shown which of them its flow tables count", port)
		e.Fix = "count on the represented function, or by XDP (backend: xdp)"
		return e
	}
	bus, function := functionOf(filepath.Join(h.net, name, "device"))
	switch is, err := h.eswitch(bus, function); {
	case err != nil:
		e.Reason = fmt.Sprintf("reading the e-switch's mode of %s/%s: %v; in switchdev mode packets that the e-switch forwards do not reach its flow tables", bus, function, err)
		e.Fix = fmt.Sprintf("give the program CAP_NET_ADMIN, and compare: devlink dev eswitch show %s/%s", bus, function)
	case is:
		e.Reason = fmt.Sprintf("its NIC is in switchdev mode (phys_switch_id %s): packets that the e-switch forwards do not reach its flow tables, and no test has shown the others", id)
		e.Fix = fmt.Sprintf("count by XDP (backend: xdp), or set the NIC to legacy mode: devlink dev eswitch set %s/%s mode legacy", bus, function)
	default:
		return nil
	}
	return e
}

// functionOf returns devlink's names of the function behind a link in sysfs.
func functionOf(link string) (bus, function string) {
	return base(filepath.Join(link, "subsystem")), base(link)
}

// trimmed returns the text of a file of sysfs, or "".
func trimmed(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// bondReason returns why no device counts on an interface that is a bond or belongs to one, and the next step. It returns "" if a
// bond is not the reason.
func bondReason(infos []portInfo, net, name string) (reason, fix string) {
	for _, info := range infos {
		if slices.Contains(info.slaves, name) {
			return fmt.Sprintf("interface %s: the device %s counts the packets of all slaves of %s", name, info.name, info.netdev),
				fmt.Sprintf("name %s in the place of its slaves under interfaces", info.netdev)
		}
		if slices.Contains(slavesOf(net, name), info.netdev) {
			return fmt.Sprintf("interface %s: it is a bond, and the device %s counts the packets of its slave %s alone", name, info.name, info.netdev),
				fmt.Sprintf("name the slaves of %s in its place under interfaces", name)
		}
	}
	return "", ""
}
