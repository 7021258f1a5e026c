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
			p.refused = cmp.Or(p.refused, h.switchdevReason(p.name, name))
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

// Switchdev returns how an interface belongs to a NIC in switchdev mode, for example "it is a representor (phys_port_name
// pf0vf3)", or "". A bond belongs to the NIC of its slaves. It looks in the network namespace of the calling thread.
func Switchdev(netdev string) (string, error) { return thisHost.switchdevWithSlaves(netdev) }

// switchdevWithSlaves is Switchdev.
func (h host) switchdevWithSlaves(netdev string) (string, error) {
	for _, name := range append([]string{netdev}, slavesOf(h.net, netdev)...) {
		if how, err := h.switchdev(name); how != "" || err != nil {
			return how, err
		}
	}
	return "", nil
}

// switchdev is Switchdev for an interface that is no bond. We have to ask for the mode: since Linux 5.10, mlx5 has a
// phys_switch_id on every function that manages an e-switch.
func (h host) switchdev(name string) (string, error) {
	id := trimmed(filepath.Join(h.net, name, "phys_switch_id"))
	if id == "" {
		return "", nil
	}
	if port := trimmed(filepath.Join(h.net, name, "phys_port_name")); representor.MatchString(port) {
		return fmt.Sprintf("it is a representor (phys_port_name %s)", port), nil
	}
	bus, function := functionOf(filepath.Join(h.net, name, "device"))
	is, err := h.eswitch(bus, function)
	switch {
	case err != nil:
		return "", fmt.Errorf("reading the e-switch's mode of %s/%s: %w", bus, function, err)
	case is:
		return fmt.Sprintf("its NIC is in switchdev mode (phys_switch_id %s)", id), nil
	}
	return "", nil
}

// switchdevReason returns why we must not count with a device on an interface of a NIC in switchdev mode, or nil.
func (h host) switchdevReason(device, name string) error {
	how, err := h.switchdev(name)
	if how == "" && err == nil {
		return nil
	}
	e := &probe.UnsupportedError{Feature: "counting in hardware", Object: name}
	if err != nil {
		bus, function := functionOf(filepath.Join(h.net, name, "device"))
		e.Reason = fmt.Sprintf("%v; in switchdev mode packets that the e-switch forwards do not reach its flow tables", err)
		e.Fix = fmt.Sprintf("give the program CAP_NET_ADMIN, and compare: devlink dev eswitch show %s/%s", bus, function)
		return e
	}
	e.Reason = how + ": packets that the e-switch forwards do not reach its flow tables, and no test has shown which others they count"
	e.Fix = fmt.Sprintf("count by XDP (backend: xdp), or test the device, so that we can allow it: flowtally selftest --interface %s --rdma-device %s", name, device)
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
