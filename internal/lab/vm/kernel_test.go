package vm

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// module is an object with a .modinfo of those strings and nothing else.
func module(t *testing.T, info ...string) []byte {
	t.Helper()
	names := []byte("\x00.modinfo\x00.shstrtab\x00")
	body := []byte(strings.Join(info, "\x00") + "\x00")
	const header, section = 64, 64
	var b bytes.Buffer
	h := elf.Header64{
		Type: uint16(elf.ET_REL), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Shoff: uint64(header + len(names) + len(body)), Ehsize: header, Shentsize: section, Shnum: 3, Shstrndx: 2,
	}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	for _, part := range []any{
		h, names, body, elf.Section64{},
		elf.Section64{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: uint64(header + len(names)), Size: uint64(len(body))},
		elf.Section64{Name: 10, Type: uint32(elf.SHT_STRTAB), Off: header, Size: uint64(len(names))},
	} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// unpackedKernel writes the files of a kernel package.
func unpackedKernel(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestModulesComeAfterThoseThatTheyNeed(t *testing.T) {
	const root = "lib/modules/6.1.0-1-amd64/"
	k, err := OpenKernel(unpackedKernel(t, map[string][]byte{
		"boot/vmlinuz-6.1.0-1-amd64":       nil,
		root + "modules.builtin":           []byte("kernel/lib/crc32.ko\nkernel/net/ipv6/ipv6-core.ko\n"),
		root + "kernel/drivers/rdma-x.ko":  module(t, "license=GPL", "depends=ib-core,udp_tunnel,crc32", "name=rdma_x"),
		root + "kernel/drivers/ib_core.ko": module(t, "depends=base"),
		root + "kernel/net/udp_tunnel.ko":  module(t, "depends=base,ipv6_core"),
		root + "kernel/base.ko":            module(t, "depends="),
		root + "kernel/lost.ko":            module(t, "depends=nowhere"),
		root + "kernel/broken.ko":          []byte("no object"),
	}))
	if err != nil {
		t.Fatal(err)
	}
	if k.Release != "6.1.0-1-amd64" || filepath.Base(k.Image) != "vmlinuz-6.1.0-1-amd64" {
		t.Errorf("got %+v", k)
	}
	for _, c := range []struct {
		name   string
		wanted []string
		order  []string
		err    string
	}{
		{"what is needed comes first, and once", []string{"rdma_x", "base"}, []string{"base", "ib_core", "udp_tunnel", "rdma_x"}, ""},
		{"dashes are underscores", []string{"rdma-x"}, []string{"base", "ib_core", "udp_tunnel", "rdma_x"}, ""},
		{"built in", []string{"crc32", "ipv6_core"}, nil, ""},
		{"none", []string{"base", "veth"}, nil, "module veth: kernel 6.1.0-1-amd64 does not have it"},
		{"none that is needed", []string{"lost"}, nil, "nowhere, which lost needs"},
		{"no object", []string{"broken"}, nil, "module broken"},
	} {
		t.Run(c.name, func(t *testing.T) {
			modules, err := k.Modules(c.wanted...)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("got %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var order []string
			for _, m := range modules {
				order = append(order, m.Name)
			}
			if diff := cmp.Diff(c.order, order); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The kernel, the list of what is built in and the modules each come from a package.
func TestKernelMayComeInSeveralPackages(t *testing.T) {
	const root = "usr/lib/modules/7.3.4-cloud/"
	k, err := OpenKernel(
		unpackedKernel(t, map[string][]byte{root + "vmlinuz": nil}),
		unpackedKernel(t, map[string][]byte{root + "kernel/veth.ko": module(t, "depends=base,cbc"), root + "kernel/base.ko": module(t, "depends=")}),
		unpackedKernel(t, map[string][]byte{root + "modules.builtin": []byte("kernel/crypto/cbc.ko\n")}),
	)
	if err != nil {
		t.Fatal(err)
	}
	modules, err := k.Modules("veth")
	if err != nil || k.Release != "7.3.4-cloud" || len(modules) != 2 || modules[1].Name != "veth" {
		t.Errorf("got kernel %s with %d modules, %v; want 7.3.4-cloud with base and veth", k.Release, len(modules), err)
	}
}

func TestOpenKernelRefusesAnythingButOneKernelWithModules(t *testing.T) {
	for name, files := range map[string]map[string][]byte{
		"none":       {"boot/config": nil},
		"two":        {"boot/vmlinuz-1": nil, "boot/vmlinuz-2": nil},
		"no modules": {"boot/vmlinuz-1": nil},
	} {
		if _, err := OpenKernel(unpackedKernel(t, files)); err == nil {
			t.Errorf("%s: taken for a kernel", name)
		}
	}
}
