package shm

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/golden"
)

// hexParts are the bytes of the golden file that section 4 of the specification shows.
var hexParts = []struct {
	title  string
	at, n  int
	remark string
}{
	{"The header that never changes", 0, 128,
		"`magic`; `version` 1, `byte_order`, `header_length` 0x10000, `clock` 1; `segment_length` 0x440000, `created_wall`; …, " +
			"`segment_counters` 0x1000, `block_length` 0x40, `history` 4, `file`; the last 8 bytes are the `checksum`."},
	{"The segment table", hdrTable, 16, "Segment 0 is of `kind` 1 and has used 4 slots; segment 1 is of `kind` 2 and has used 1."},
	{"The entry of `web`", headerSize + 65536, 80,
		"`identity`: 2 (LIVE) << 32 | 1; `freed_at` 0, `added_at`; `born` 0; the name."},
	{"Its block's sequence word", headerSize + 65536 + segSeq, 16, "Epoch 1, count 18: two publishes for each of five additions and one removal, and six cycles. It is even: copy 0 is current."},
	{"The current copy, and its first two rows", headerSize + 65536 + segCopy0, 112,
		"`cycle` 6, `oldest` 1015, `newest` 1035; `live` 0xf; `epoch` 1; at 64 the value of `web`: 15 packets, 1,500 bytes, " +
			"sampled at 1015, then the value of `dns`."},
}

// hexSection is section 4.
func hexSection(b []byte) string {
	var out strings.Builder
	out.WriteString("## 4. A file by its bytes\n\nParts of the golden file, `shm/testdata/v1.mirror.gz`, in a little-endian dump.\n" +
		"`TestHexDumpOfTheSpecificationShowsTheGoldenFile` compares them.\n")
	for _, p := range hexParts {
		fmt.Fprintf(&out, "\n%s:\n\n```\n", p.title)
		for at := p.at; at < p.at+p.n; at += 16 {
			fmt.Fprintf(&out, "%08x  % x  % x  |%s|\n", at, b[at:at+8], b[at+8:at+16], printed(b[at:at+16]))
		}
		fmt.Fprintf(&out, "```\n\n%s\n", wrap(p.remark, 116))
	}
	return out.String() + "\n"
}

func printed(b []byte) string {
	out := make([]byte, len(b))
	for i, c := range b {
		if out[i] = '.'; c >= ' ' && c <= '~' {
			out[i] = c
		}
	}
	return string(out)
}

// wrap breaks text into lines of at most n bytes.
func wrap(text string, n int) string {
	var out strings.Builder
	length := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case length+1+len(word) > n:
			out.WriteByte('\n')
			length = 0
		default:
			out.WriteByte(' ')
			length++
		}
		out.WriteString(word)
		length += len(word)
	}
	return out.String()
}

// The dump in the specification is that of the golden file. -update writes the section anew.
func TestHexDumpOfTheSpecificationShowsTheGoldenFile(t *testing.T) {
	const path = "../docs/mirror-format.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), "## 4. ")
	_, after, ok2 := strings.Cut(rest, "\n## 5. ")
	if !ok || !ok2 {
		t.Fatal("the document has no sections 4 and 5")
	}
	want := before + hexSection(golden.Unpack(t, goldenPath)) + "## 5. " + after
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(text) {
		t.Error("section 4 is not the golden file's: go test ./shm -run TestHexDumpOfTheSpecificationShowsTheGoldenFile -update, and look whether its remarks hold")
	}
}
