package bench

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Machine says where the figures were taken: they are comparable as ratios
// only, and only with care between machines.
type Machine struct {
	OS     string `json:"os"`
	Kernel string `json:"kernel"`
	Arch   string `json:"arch"`
	CPU    string `json:"cpu"` // as the hypervisor names it, which may say little
	CPUs   int    `json:"cpus"`
	Go     string `json:"go"`
	Pinned int    `json:"pinned_cpu"`

	// The numbers of the processor that /proc/cpuinfo has. On arm64 they are the implementer, the architecture, the part
	// and the variant.
	Vendor   string `json:"vendor"`
	Family   int    `json:"family"`
	Model    int    `json:"model"`
	Stepping int    `json:"stepping"`
	// Mitigations that make calls, returns and jumps of BPF programs slower, as the kernel names them: "retbleed:
	// Mitigation: untrained return thunk". Those of which the kernel says "Not affected" are left out.
	Mitigations []string `json:"mitigations"`
}

func machine(env Env) Machine {
	m := Machine{
		OS:          runtime.GOOS,
		Arch:        runtime.GOARCH,
		CPUs:        runtime.NumCPU(),
		Go:          runtime.Version(),
		Pinned:      env.CPU,
		Mitigations: []string{},
	}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(b))
	}
	b, _ := os.ReadFile("/proc/cpuinfo") // absent elsewhere than on Linux: the fields stay empty
	m.identify(string(b))
	for _, name := range []string{"indirect_target_selection", "retbleed", "spec_rstack_overflow", "spectre_v2"} {
		b, err := os.ReadFile(filepath.Join("/sys/devices/system/cpu/vulnerabilities", name))
		if says := strings.TrimSpace(string(b)); err == nil && says != "Not affected" {
			m.Mitigations = append(m.Mitigations, name+": "+says)
		}
	}
	return m
}

// identify sets the fields that cpuinfo has of its first processor.
func (m *Machine) identify(cpuinfo string) {
	first, _, _ := strings.Cut(cpuinfo, "\n\n")
	for line := range strings.Lines(first) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		number, _ := strconv.ParseInt(value, 0, 32)
		switch strings.TrimSpace(key) {
		case "model name":
			m.CPU = value
		case "vendor_id", "CPU implementer":
			m.Vendor = value
		case "cpu family", "CPU architecture":
			m.Family = int(number)
		case "model", "CPU part":
			m.Model = int(number)
		case "stepping", "CPU variant":
			m.Stepping = int(number)
		}
	}
}

// Core names the family of the processor, such as "Zen 5". Figures of one family can be compared. A family without a name
// here has its numbers.
func (m Machine) Core() string {
	if m.Vendor == "" {
		return m.Arch
	}
	numbers := fmt.Sprintf("%s family %d model %d", m.Vendor, m.Family, m.Model)
	switch m.Vendor {
	case "AuthenticAMD":
		return cmp.Or(m.zen(), numbers)
	case "GenuineIntel":
		return cmp.Or(m.xeon(), numbers)
	default:
		return numbers
	}
}

// zen is the name of a core of AMD, by the ranges of Linux (arch/x86/kernel/cpu/amd.c), or "".
func (m Machine) zen() string {
	within := func(ranges ...int) bool {
		for i := 0; i < len(ranges); i += 2 {
			if ranges[i] <= m.Model && m.Model <= ranges[i+1] {
				return true
			}
		}
		return false
	}
	switch {
	case m.Family == 0x17 && within(0x00, 0x2f, 0x50, 0x5f):
		return "Zen"
	case m.Family == 0x17:
		return "Zen 2"
	case m.Family == 0x19 && within(0x00, 0x0f, 0x20, 0x5f):
		return "Zen 3"
	case m.Family == 0x19 && within(0x10, 0x1f, 0x60, 0xaf):
		return "Zen 4"
	case m.Family == 0x1a && within(0x00, 0x2f, 0x40, 0x4f, 0x60, 0x7f):
		return "Zen 5"
	default:
		return ""
	}
}

// xeon is the name of a server's core of Intel, or "".
func (m Machine) xeon() string {
	if m.Family != 6 {
		return ""
	}
	switch m.Model {
	case 63:
		return "Haswell"
	case 79:
		return "Broadwell"
	case 85:
		switch {
		case m.Stepping < 5:
			return "Skylake"
		case m.Stepping < 10:
			return "Cascade Lake"
		default:
			return "Cooper Lake"
		}
	case 106, 108:
		return "Ice Lake"
	case 143:
		return "Sapphire Rapids"
	case 207:
		return "Emerald Rapids"
	case 173, 174:
		return "Granite Rapids"
	default:
		return ""
	}
}
