package include

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// goLayout evaluates the constants of shm/layout.go, which that package keeps to itself.
func goLayout(t *testing.T) map[string]int64 { return constantsOf(t, "../layout.go") }

// constantsOf evaluates the constants of a file.
func constantsOf(t *testing.T, path string) map[string]int64 {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	// The constants have values even if names of other files are not found.
	pkg, _ := (&types.Config{Error: func(error) {}}).Check("shm", fset, []*ast.File{file}, nil)
	constants := map[string]int64{}
	for _, name := range pkg.Scope().Names() {
		if c, ok := pkg.Scope().Lookup(name).(*types.Const); ok && c.Val().Kind() == constant.Int {
			constants[name], _ = constant.Int64Val(c.Val())
		}
	}
	return constants
}

// cNames maps the constants that have other names in C.
var cNames = map[string]string{
	"headerSize": "FT_HEADER_SIZE", "fixedSize": "FT_HDR_FIXED", "entrySize": "FT_ENT_SIZE",
	"deviceSlotSize": "FT_DSL_SIZE", "deviceHeaderSize": "FT_DEVICE_HEADER_SIZE", "lineSize": "FT_LINE_SIZE",
	"copySize": "FT_CPY_SIZE", "recordSize": "FT_REC_SIZE", "historySize": "FT_HIS_SIZE", "valueSize": "FT_VAL_SIZE",
	"BlockLen": "FT_BLK_LEN", "recSlot": "FT_REC_SLOTS", "recCycle": "FT_REC_CYCLES",
	"hdrBlockLen": "FT_HDR_BLOCK_LENGTH", "valSampled": "FT_VAL_SAMPLED_AT",
	"hdrTable": "FT_HDR_DESCRIPTORS", "segKind": "FT_DSC_KIND", "segHigh": "FT_DSC_HIGH", "segmentDescriptorSize": "FT_DSC_SIZE",
	"SegmentLen": "FT_SEG_COUNTERS", "segmentSize": "FT_SEG_SIZE", "segSeq": "FT_SEG_SEQS", "segIntent": "FT_SEG_INTENTS",
	"segCopy0": "FT_SEG_COPIES", "maxSegments": "FT_MOST_SEGMENTS",
	"pageSize": "FT_WP_SIZE", "turns": "FT_WP_TURNS",
	"epochShift": "FT_EPOCH_SHIFT", "epochMax": "FT_EPOCH_MAX", "entLive": "FT_ENT_LIVE",
	"lvmCPUs": "FT_LVM_CPUS",
	"Boot":    "FT_BOOT", "Run": "FT_RUN", "Halt": "FT_HALT", "Fail": "FT_FAIL",
}

func cName(name string) string {
	if c, ok := cNames[name]; ok {
		return c
	}
	var b strings.Builder
	b.WriteString("FT")
	for i, r := range name {
		if i == 0 || unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToUpper(r))
	}
	return b.String()
}

// Every offset of the headers is pinned by a _Static_assert to the constant of
// shm/layout.go, and every one has such a peer.
func TestLayoutIsTheSameInC(t *testing.T) {
	need.Tool(t, "cc")
	inHeader := map[string]bool{}
	for _, part := range []struct {
		header, from, to string
		least            int
	}{
		{"flowtally_layout.h", "enum {", "};", 70},
		{"flowtally_device.h", "---- layout", "---- order", 12},
		{"flowtally_live.h", "---- layout", "---- order", 7},
		{"flowtally_wait.h", "---- layout", "---- the system", 7},
	} {
		b, err := header.ReadFile(part.header)
		if err != nil {
			t.Fatal(err)
		}
		before := len(inHeader)
		_, constants, _ := strings.Cut(string(b), part.from)
		constants, _, _ = strings.Cut(constants, part.to)
		for _, m := range regexp.MustCompile(`(?m)^\t(FT_[A-Z_]+) =`).FindAllStringSubmatch(constants, -1) {
			inHeader[m[1]] = true
		}
		if n := len(inHeader) - before; n < part.least {
			t.Fatalf("%d constants found in %s", n, part.header)
		}
	}
	states, err := header.ReadFile("flowtally_status.h")
	if err != nil {
		t.Fatal(err)
	}
	src := "#include \"flowtally_device.h\"\n#include \"flowtally_live.h\"\n#include \"flowtally_wait.h\"\n"
	for name, value := range goLayout(t) {
		c := cName(name)
		if inHeader[c] || strings.Contains(string(states), c+" = ") {
			src += fmt.Sprintf("_Static_assert(%s == %d, \"%s\");\n", c, value, name)
			delete(inHeader, c)
		}
	}
	for _, limit := range []string{"FT_MOST_HISTORY", "FT_MOST_DEVICE_SLOTS", "FT_MOST_LIVE_COUNTERS"} {
		delete(inHeader, limit) // of shm/region.go, shm/device_mem.go and shm/live.go
	}
	for c := range inHeader {
		t.Errorf("%s has no peer in shm/layout.go", c)
	}
	// Copy 1 of block 0 follows the copies 0 of all blocks, wherever C computes it.
	src += fmt.Sprintf("_Static_assert(FT_SEG_COPIES + FT_SEG_COUNTERS / FT_BLK_LEN * FT_CPY_SIZE == %d, \"copies\");\n", goLayout(t)["segCopy1"])
	src += `_Static_assert(sizeof(ft_value) == FT_VAL_SIZE, "value");` + "\n"
	for name, value := range map[string]string{"name": "nameSize", "kind": "kindSize", "unit": "unitSize", "labels": "labelsSize",
		"text": "textSize", "source": "sourceSize", "byte_basis": "basisSize"} {
		src += fmt.Sprintf("_Static_assert(sizeof(((ft_entry *)0)->%s) == %d, \"%s\");\n", name, goLayout(t)[value], value)
	}
	path := filepath.Join(t.TempDir(), "layout.c")
	if err := os.WriteFile(path, []byte(src), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, "cc", "-std=c11", "-I.", "-fsyntax-only", path)
}

// The messages of the socket NAME.words must have the layout of shm/words/words.go.
func TestMessageOfWordsIsTheSameInC(t *testing.T) {
	need.Tool(t, "cc")
	inGo := constantsOf(t, "../words/words.go")
	src := "#include \"flowtally_words.h\"\n"
	for name, c := range map[string]string{
		"wdmVersion": "FT_WDM_VERSION", "wdmByteOrder": "FT_WDM_BYTE_ORDER", "wdmKind": "FT_WDM_KIND", "wdmLimit": "FT_WDM_LIMIT",
		"wdmIndex": "FT_WDM_INDEX", "wdmGenerated": "FT_WDM_GENERATED", "wdmName": "FT_WDM_NAME", "messageSize": "FT_WDM_SIZE",
		"TakeWords": "FT_WDM_TAKE", "ReturnWords": "FT_WDM_RETURN", "fileSize": "FT_WORDS_FILE_SIZE",
	} {
		value, ok := inGo[name]
		if !ok {
			t.Errorf("shm/words/words.go has no constant %s", name)
		}
		src += fmt.Sprintf("_Static_assert(%s == %d, \"%s\");\n", c, value, name)
	}
	path := filepath.Join(t.TempDir(), "words.c")
	if err := os.WriteFile(path, []byte(src), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, "cc", "-std=c11", "-I.", "-fsyntax-only", path)
}
