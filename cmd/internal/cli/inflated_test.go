package cli

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReplayOfAGzipBombNamesTheCause(t *testing.T) {
	const size = 256 << 10 // of a record
	var file bytes.Buffer
	z := gzip.NewWriter(&file)
	head := binary.LittleEndian.AppendUint32(nil, 0xa1b2c3d4)
	head = append(head, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	head = binary.LittleEndian.AppendUint32(head, size)
	_, err := z.Write(binary.LittleEndian.AppendUint32(head, 1))
	record := make([]byte, 16+size)
	binary.LittleEndian.PutUint32(record[8:], size)
	binary.LittleEndian.PutUint32(record[12:], size)
	for range 300 { // 75 MiB
		_, werr := z.Write(record)
		err = errors.Join(err, werr)
	}
	path := filepath.Join(t.TempDir(), "bomb.pcap.gz")
	if err := errors.Join(err, z.Close(), os.WriteFile(path, file.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
	var out, talk bytes.Buffer
	code := Main(t.Context(), strings.NewReader(""), &out, &talk, []string{"replay", path, "--flow", "all: any"})
	if code != exitFailed || !strings.Contains(talk.String(), "grows too much when it is decompressed") || !strings.Contains(talk.String(), "\n  try: decompress it first") {
		t.Errorf("code %d, error %q", code, talk.String())
	}
}
