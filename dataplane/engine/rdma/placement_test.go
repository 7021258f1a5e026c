package rdma

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/probe"
)

// sysfs is a made-up tree like the kernel's: PCI functions with network interfaces and RDMA devices.
type sysfs struct {
	t         *testing.T
	root      string
	switchdev string // the PCI function whose e-switch is in switchdev mode
	err       error  // of reading the mode
}

func (s sysfs) host() host {
	return host{net: filepath.Join(s.root, "net"), eswitch: func(bus, device string) (bool, error) {
		if bus != "pci" {
			s.t.Errorf("the mode of %s/%s is read, and the bus is pci", bus, device)
		}
		return device == s.switchdev, s.err
	}}
}

func (s sysfs) file(path, text string) {
	s.t.Helper()
	path = filepath.Join(s.root, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text+"\n"), 0o644)); err != nil {
		s.t.Fatal(err)
	}
}

func (s sysfs) link(path, to string) {
	s.t.Helper()
	path = filepath.Join(s.root, path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(filepath.Join(s.root, to), path)); err != nil {
		s.t.Fatal(err)
	}
}

// function makes a PCI function of mlx5_core with an interface. If rdma is not empty, it has an RDMA device whose GID table
// names gid.
func (s sysfs) function(pci, netdev, rdma, gid string) {
	s.t.Helper()
	s.driven("mlx5_core", pci, netdev, rdma, gid)
}

func (s sysfs) driven(driver, pci, netdev, rdma, gid string) {
	s.t.Helper()
	s.file("pci/"+pci+"/vendor", "0x15b3")
	s.link("net/"+netdev+"/device", "pci/"+pci)
	s.link("pci/"+pci+"/subsystem", "bus/pci")
	s.link("pci/"+pci+"/driver", "drivers/"+driver)
	s.file("pci/"+pci+"/net/"+netdev+"/device_of", pci)
	if rdma != "" {
		s.file("pci/"+pci+"/infiniband/"+rdma+"/node_type", "1: CA")
		s.link("infiniband/"+rdma+"/device", "pci/"+pci)
		s.file("infiniband/"+rdma+"/ports/1/gid_attrs/ndevs/0", gid)
	}
}

// port returns the only port of a device, as ibvHardware.devices would list it.
func (s sysfs) port(rdma string) portInfo {
	s.t.Helper()
	dir := filepath.Join(s.root, "infiniband", rdma)
	found := netdevsIn(dir)
	if len(found) != 1 {
		s.t.Fatalf("%s has ports %v", rdma, found)
	}
	ports := []portInfo{{name: rdma, port: found[0].port, netdev: found[0].netdev, driver: driverOf(dir)}}
	s.host().placePorts(ports, dir)
	return ports[0]
}

// A device of a bond counts the packets of its own slave, also if another slave belongs to a NIC without RDMA. With RoCE LAG it
// counts those of the whole bond. The device of a virtual function counts the packets of that function.
func TestAPortCountsOnTheInterfaceWhosePacketsItSees(t *testing.T) {
	s := sysfs{t: t, root: t.TempDir()}
	net := filepath.Join(s.root, "net")
	s.function("0000:01:00.0", "eth0", "mlx5_0", "bond0")
	s.function("0000:02:00.0", "eth1", "mlx5_1", "bond0")
	s.file("net/bond0/bonding/slaves", "eth0 eth1")
	s.function("0000:03:00.0", "eth2", "mlx5_bond_0", "bond1")
	s.function("0000:03:00.1", "eth3", "", "")
	s.file("net/bond1/bonding/slaves", "eth2 eth3")
	s.function("0000:01:00.2", "eth0v0", "mlx5_2", "eth0v0")
	s.link("pci/0000:01:00.2/physfn", "pci/0000:01:00.0")
	s.function("0000:04:00.0", "eth4", "mlx5_3", "eth4")
	s.function("0000:05:00.0", "eth5", "mlx5_4", "bond2")
	s.driven("ixgbe", "0000:06:00.0", "eth6", "", "")
	s.file("net/bond2/bonding/slaves", "eth6 eth5")
	s.function("0000:07:00.0", "eth7", "mlx5_bond_1", "eth7") // the GID table names a slave
	s.function("0000:07:00.1", "eth8", "", "")
	s.file("net/bond3/bonding/slaves", "eth7 eth8")
	s.link("net/eth7/master", "net/bond3")
	s.function("0000:08:00.0", "eth9", "mlx5_5", "eth9")
	s.file("net/br0/bridge/bridge_id", "8000.000000000000")
	s.link("net/eth9/master", "net/br0")
	var all []portInfo
	for rdma, want := range map[string]string{"mlx5_0": "eth0", "mlx5_1": "eth1", "mlx5_bond_0": "bond1", "mlx5_2": "eth0v0", "mlx5_3": "eth4", "mlx5_4": "eth5", "mlx5_bond_1": "bond3", "mlx5_5": "eth9"} {
		got := s.port(rdma)
		if got.netdev != want || got.refused != nil {
			t.Errorf("%s counts on %s (%v), want %s", rdma, got.netdev, got.refused, want)
		}
		all = append(all, got)
	}
	for name, want := range map[string]string{
		"bond0": "name the slaves of bond0", "eth2": "name bond1", "eth3": "name bond1", "eth0": "", "bond1": "", "eth4": "",
		"bond2": "name the slaves of bond2", "eth8": "name bond3",
	} {
		if _, fix := bondReason(all, net, name); !strings.HasPrefix(fix, want) || want == "" && fix != "" {
			t.Errorf("interface %s: next step %q, want %q", name, fix, want)
		}
	}
}

// In switchdev mode representors, uplinks and bonds of uplinks are refused with the reason. A phys_switch_id alone is none: the
// physical function of mlx5 has it in legacy mode, too.
func TestSwitchdevIsRefused(t *testing.T) {
	const function, id = "0000:01:00.0", "e41d2d0003a1b2c4"
	for name, tt := range map[string]struct {
		port, id, mode string
		err            error
		bond           bool
		want           string
	}{
		"uplink":                        {port: "p0", id: id, mode: function, want: "switchdev mode"},
		"uplinks of a bond":             {port: "p0", id: id, mode: function, bond: true, want: "switchdev mode"},
		"representor":                   {port: "pf0vf3", id: id, mode: function, want: "representor"},
		"of a controller":               {port: "c1pf0vf3", id: id, mode: function, want: "representor"},
		"of a subfunction":              {port: "pf1sf88", id: id, mode: function, want: "representor"},
		"of the host":                   {port: "pf0hpf", id: id, mode: function, want: "switchdev mode"},
		"legacy mode":                   {port: "p0", id: id},
		"legacy mode, no switch":        {port: "p0"},
		"legacy mode, bond":             {port: "p0", id: id, bond: true},
		"mode unknown":                  {port: "p0", id: id, err: os.ErrPermission, want: "reading the e-switch's mode of pci/" + function},
		"mode unknown, but no e-switch": {port: "p0", err: os.ErrPermission},
	} {
		t.Run(name, func(t *testing.T) {
			s := sysfs{t: t, root: t.TempDir(), switchdev: tt.mode, err: tt.err}
			gid := "eth0"
			if tt.bond { // RoCE LAG, whose device counts the packets of both slaves
				gid = "bond0"
				s.file("net/bond0/bonding/slaves", "eth0 eth1")
			}
			s.function(function, "eth0", "mlx5_0", gid)
			s.file("net/eth0/phys_port_name", tt.port)
			if tt.id != "" {
				s.file("net/eth0/phys_switch_id", tt.id)
			}
			how, howErr := s.host().switchdevWithSlaves(gid)
			if known := tt.want != "" && tt.err == nil; known != (how != "") || howErr == nil && tt.want != "" && !strings.Contains(how, tt.want) {
				t.Errorf("%s belongs to a NIC in switchdev mode: %q, %v; want %q", gid, how, howErr, tt.want)
			}
			err := s.port("mlx5_0").refused
			var unsupported *probe.UnsupportedError
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (!errors.As(err, &unsupported) || !strings.Contains(unsupported.Reason, tt.want) || unsupported.Fix == ""):
				t.Errorf("%v, want a reason with %q and a next step", err, tt.want)
			}
		})
	}
}

// The error must have the reason, and the nil hardware of this backend must not be asked to open the port.
func TestRefusedPortIsNotOpened(t *testing.T) {
	why := &probe.UnsupportedError{Feature: "counting in hardware", Object: "eth0", Reason: "it is a representor", Fix: "count by XDP"}
	b := &Backend{}
	d := &device{netdev: "eth0"}
	b.now = func() int64 { return 0 }
	err := b.openDevice(d, []portInfo{{name: "mlx5_0", port: 1, netdev: "eth0", refused: why}})
	if !errors.Is(err, why) {
		t.Errorf("%v, want %v", err, why)
	}
}
