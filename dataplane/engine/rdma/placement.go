package rdma

import (
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

// placePorts resolves the interfaces of a device's ports on hosts with bonds, and sets the reason against ports
// that cannot be counted on yet. sysfs is the directory of the device, net is netClass.
//
// The GID table of a bonded port names the bond. If the device counts the packets of one slave, the port's interface is
// that slave: the one of the device's own PCI function. With RoCE LAG one device counts the packets of all slaves, and
// the slaves of the other functions have no device: the port's interface is the bond then.
func placePorts(ports []portInfo, sysfs, net string) {
	for i := range ports {
		p := &ports[i]
		if slaves := slavesOf(net, p.netdev); len(slaves) > 0 {
			lag := slices.ContainsFunc(slaves, func(s string) bool { return !exists(filepath.Join(net, s, "device", "infiniband")) })
			own := slices.IndexFunc(slaves, func(s string) bool {
				return sameDevice(filepath.Join(net, s, "device"), filepath.Join(sysfs, "device"))
			})
			switch {
			case !lag && own >= 0:
				p.netdev = slaves[own]
			case lag:
				p.slaves = slaves
			}
		}
		p.refused = switchdevReason(net, p.netdev)
	}
}

// slavesOf returns the slaves of a bond, or nil.
func slavesOf(net, name string) []string {
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

// sameDevice reports whether two links lead to one device.
func sameDevice(a, b string) bool {
	x, err := filepath.EvalSymlinks(a)
	if err != nil {
		return false
	}
	y, err := filepath.EvalSymlinks(b)
	return err == nil && x == y
}

// representor is the phys_port_name of the representor of a function: a physical function, a virtual function or a
// subfunction, of an embedded CPU's controller or of the host.
var representor = regexp.MustCompile(`^(c[0-9]+)?pf[0-9]+((vf|sf)[0-9]+)?$`)

// switchdevReason returns why a port is not counted on whose interface belongs to a NIC in switchdev mode, or nil.
// Drivers have a phys_switch_id in that mode alone.
func switchdevReason(net, name string) error {
	id := trimmed(filepath.Join(net, name, "phys_switch_id"))
	if id == "" {
		return nil
	}
	port := trimmed(filepath.Join(net, name, "phys_port_name"))
	e := &probe.UnsupportedError{Feature: "counting in hardware", Object: name}
	if representor.MatchString(port) {
		e.Reason = fmt.Sprintf("it is a representor (phys_port_name %s): its packets pass the e-switch, and no test has shown which of them its flow tables count", port)
		e.Fix = "count on the represented function, or by XDP (backend: xdp)"
		return e
	}
	e.Reason = fmt.Sprintf("its NIC is in switchdev mode (phys_switch_id %s): packets that the e-switch forwards do not reach its flow tables, and no test has shown the others", id)
	e.Fix = "count by XDP (backend: xdp), or set the NIC to legacy mode: devlink dev eswitch set DEVICE mode legacy"
	return e
}

// trimmed returns the text of a file of sysfs, or "".
func trimmed(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// bondReason returns why no device counts on an interface of a bond, and the next step, or "".
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
