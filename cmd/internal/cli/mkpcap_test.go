package cli

import (
	"encoding/binary"
	"fmt"
	"os"

	"github.com/flowtally/flowtally/cmd/internal/explain"
)

// mkpcap implements "mkpcap FILE LINKTYPE [PACKET…]": it writes a capture of packets given in words.
func mkpcap() {
	if err := writePcap(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func writePcap(path, link string, packets []string) error {
	var number uint32
	if _, err := fmt.Sscan(link, &number); err != nil {
		return err
	}
	b := []byte{0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0}
	b = binary.LittleEndian.AppendUint32(b, number)
	for _, text := range packets {
		m, err := parseMatch(text)
		if err != nil {
			return err
		}
		frame, err := explain.Build(m)
		if err != nil {
			return err
		}
		b = append(b, make([]byte, 8)...)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(frame)))
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(frame))), frame...)
	}
	return os.WriteFile(path, b, 0o600)
}
