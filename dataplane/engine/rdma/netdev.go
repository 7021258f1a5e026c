package rdma

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// portNetdev is the network interface of a port of an RDMA device.
type portNetdev struct {
	port   uint8
	netdev string
}

// netdevs lists the interfaces of a device's ports from the GID table in sysfs. If the table names none, since the kernel has no
// table or the ports have no GIDs, it asks with RDMA_NLDEV_CMD_PORT_GET.
func netdevs(device, sysfs string) []portNetdev {
	out := netdevsIn(sysfs)
	if len(out) == 0 {
		out = netdevsByNetlink(device)
	}
	return out
}

// netdevsIn reads ports/N/gid_attrs/ndevs/*. The first entry of a port names its own interface, the others may name VLANs and
// bonds above.
func netdevsIn(sysfs string) []portNetdev {
	ports, err := os.ReadDir(filepath.Join(sysfs, "ports"))
	if err != nil {
		return nil
	}
	var out []portNetdev
	for _, p := range ports {
		n, err := strconv.ParseUint(p.Name(), 10, 8)
		if err != nil {
			continue
		}
		if name := firstNdev(filepath.Join(sysfs, "ports", p.Name(), "gid_attrs", "ndevs")); name != "" {
			out = append(out, portNetdev{port: uint8(n), netdev: name})
		}
	}
	return out
}

// firstNdev returns the interface of the lowest entry that can be read. Reading the entry of an empty GID fails with EINVAL.
func firstNdev(dir string) string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	number := func(e os.DirEntry) int {
		n, _ := strconv.Atoi(e.Name())
		return n
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return cmp.Compare(number(a), number(b)) })
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if name := strings.TrimSpace(string(b)); err == nil && name != "" {
			return name
		}
	}
	return ""
}

// driverOf returns the kernel driver of a device.
func driverOf(sysfs string) string {
	return base(filepath.Join(sysfs, "device", "driver"))
}
