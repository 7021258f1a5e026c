package rdmacore

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Device is a device that the sysfs of a root names.
type Device struct {
	Name     string
	nodeType string // as sysfs has it
	modalias string // by which libibverbs finds the provider
	driver   string // of the kernel
}

// Devices are a ConnectX-5 and an EFA.
func Devices() []Device {
	return []Device{
		{"mlx5_0", "1: CA", "pci:v000015B3d00001019sv000015B3sd00000008bc02sc00i00", "mlx5_core"},
		{"efa_0", "7: unspecified", "pci:v00001D0Fd0000EFA2sv00001D0Fsd0000EFA2bc02sc00i00", "efa"},
	}
}

// ids returns the files of sysfs with the PCI identifiers of the device. Libfabric, pyverbs and libpci, below perftest, read them.
func (d Device) ids() map[string]string {
	var vendor, device, subVendor, subDevice uint32
	if _, err := fmt.Sscanf(d.modalias, "pci:v%08Xd%08Xsv%08Xsd%08X", &vendor, &device, &subVendor, &subDevice); err != nil {
		panic("rdmacore: the modalias of " + d.Name + ": " + err.Error())
	}
	files := map[string]string{"class": "0x020000\n", "revision": "0x00\n", "numa_node": "0\n", "irq": "0\n"}
	for name, id := range map[string]uint32{"vendor": vendor, "device": device, "subsystem_vendor": subVendor, "subsystem_device": subDevice} {
		files[name] = fmt.Sprintf("%#04x\n", id)
	}
	config := make([]byte, 64) // the header of its configuration space
	binary.LittleEndian.PutUint16(config[0:], uint16(vendor))
	binary.LittleEndian.PutUint16(config[2:], uint16(device))
	binary.LittleEndian.PutUint16(config[10:], 0x0200) // an Ethernet controller
	binary.LittleEndian.PutUint16(config[44:], uint16(subVendor))
	binary.LittleEndian.PutUint16(config[46:], uint16(subDevice))
	files["config"] = string(config)
	files["resource"] = strings.Repeat("0x0000000000000000 0x0000000000000000 0x0000000000000000\n", 13)
	return files
}

// Listed reports whether libibverbs lists the devices that the sysfs of a root names. Where the kernel of this machine has
// RDMA, it lists the kernel's devices in place of those (NETLINK_RDMA).
func Listed() bool {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_RDMA)
	if err == nil {
		unix.Close(fd)
	}
	return err != nil
}

func pciPath(number int) string {
	return fmt.Sprintf("sys/devices/pci0000:00/0000:00:%02x.0", 4+number)
}

func (r *Root) devices() error {
	const class = "sys/class"
	files := map[string]string{class + "/infiniband_verbs/abi_version": "6\n"}
	links := make(map[string]string)
	for i, d := range Devices() {
		uverbs := "uverbs" + strconv.Itoa(i)
		pci := pciPath(i)
		ib, verbs := pci+"/infiniband/"+d.Name, pci+"/infiniband_verbs/"+uverbs
		files[pci+"/modalias"] = d.modalias + "\n"
		for name, id := range d.ids() {
			files[pci+"/"+name] = id
		}
		files[ib+"/node_type"] = d.nodeType + "\n"
		files[ib+"/node_guid"] = "0cc4:7a03:0011:2233\n"
		files[ib+"/fw_ver"] = "16.35.2000\n"
		files[verbs+"/ibdev"] = d.Name + "\n"
		files[verbs+"/abi_version"] = "1\n"
		files[verbs+"/dev"] = "231:" + strconv.Itoa(192+i) + "\n"
		if err := os.MkdirAll(filepath.Join(r.Dir, "sys/bus/pci/drivers", d.driver), 0o755); err != nil { // libfabric resolves the link
			return err
		}
		files[pci+"/uevent"] = "DRIVER=" + d.driver + "\nPCI_SLOT_NAME=" + filepath.Base(pci) + "\n"
		links[pci+"/driver"] = "../../../bus/pci/drivers/" + d.driver
		links["sys/bus/pci/devices/"+filepath.Base(pci)] = "../../../" + strings.TrimPrefix(pci, "sys/")
		links[ib+"/device"], links[verbs+"/device"] = "../..", "../.."
		links[class+"/infiniband/"+d.Name] = "../../../" + ib
		links[class+"/infiniband_verbs/"+uverbs] = "../../../" + verbs
	}
	if err := r.write(files); err != nil {
		return err
	}
	for i := range Devices() { // of numbers that no driver has: opening it fails without the uverbs kernel in software
		uverbs := filepath.Join(r.Dir, "dev", "infiniband", "uverbs"+strconv.Itoa(i))
		if err := unix.Mknod(uverbs, unix.S_IFCHR|0o600, int(unix.Mkdev(231, uint32(192+i)))); err != nil {
			return err
		}
	}
	return r.link(links)
}

func (r *Root) write(files map[string]string) error {
	for name, text := range files {
		path := filepath.Join(r.Dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (r *Root) link(links map[string]string) error {
	for name, target := range links {
		path := filepath.Join(r.Dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(target, path); err != nil {
			return err
		}
	}
	return nil
}
