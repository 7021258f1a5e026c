package lab

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf/link"
)

// Do carries out a command of a fix on the host of the end. What ethtool and bpftool would do it does by itself, because a
// host may lack them.
func (e *End) Do(t testing.TB, command string) {
	t.Helper()
	words := strings.Fields(command)
	var err error
	switch {
	case strings.HasPrefix(command, "ethtool -K ") && len(words) == 5:
		err = e.byEthtool(words[2], words[3], words[4] == "on")
	case strings.HasPrefix(command, "bpftool link detach id ") && len(words) == 5:
		err = detach(words[4])
	default:
		err = e.NS.Do(func() error {
			out, err := exec.Command("sh", "-c", command).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	if err != nil {
		t.Fatalf("carrying out %q: %v", command, err)
	}
}

// byEthtool turns an offload on or off, by the name that ethtool has for it.
func (e *End) byEthtool(name, feature string, on bool) error {
	offload, ok := map[string]Offload{"tso": TSO, "gso": GSO, "rx-vlan-offload": RxVLAN, "tx-vlan-offload": TxVLAN}[feature]
	if !ok {
		return fmt.Errorf("ethtool: the feature %s is none that a fix names", feature)
	}
	other := *e
	other.Name = name
	return other.SetOffload(on, offload)
}

// detach takes a program off its hook, as bpftool does.
func detach(id string) error {
	n, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return err
	}
	l, err := link.NewFromID(link.ID(n))
	if err != nil {
		return err
	}
	defer l.Close()
	return l.Detach()
}
