package flexio

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of docs/flexio.md")

// reference names the structures of reference 004, in its order of names.
var reference = map[string]string{
	"CQE64": "flexio_dev_cqe64", "EQE": "flexio_dev_eqe", "MiniCQEBlock": "flexio_dev_mini_cqe64",
	"CtrlSeg": "flexio_dev_wqe_ctrl_seg", "AtomicSeg": "flexio_dev_wqe_atomic_seg", "DatagramSeg": "flexio_dev_wqe_datagram_seg",
	"EthSeg": "flexio_dev_wqe_eth_seg", "InlineDataSeg": "flexio_dev_wqe_inline_data_seg",
	"InlineSendDataSeg": "flexio_dev_wqe_inline_send_data_seg", "MemPtrSendDataSeg": "flexio_dev_wqe_mem_ptr_send_data_seg",
	"RcvDataSeg": "flexio_dev_wqe_rcv_data_seg", "RDMASeg": "flexio_dev_wqe_rdma_seg", "SharedReceiveSeg": "flexio_dev_wqe_shared_receive_seg",
	"TransposeSeg": "flexio_dev_wqe_transpose_seg", "WaitOnDataSeg": "flexio_dev_wqe_wait_on_data_seg",
	"WaitOnDataDataSeg": "flexio_dev_wqe_wait_on_data_data_seg",
}

// TestDocs holds the tables of docs/flexio.md to the code: every field with its
// place, and the field of mlx5dv.h that the compiler was asked about.
func TestDocs(t *testing.T) {
	const path, begin, end = "../../docs/flexio.md", "<!-- fields -->\n", "<!-- end of fields -->\n"
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(doc), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the fields", path)
	}
	want := before + begin + tables() + end + after
	if want == string(doc) {
		return
	}
	if !*update {
		t.Fatalf("%s is not what the code says: go test ./ibv/flexio -run TestDocs -update", path)
	}
	if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

func tables() string {
	var b strings.Builder
	for _, s := range structs {
		typ := reflect.TypeOf(s.v)
		name, ok := reference[typ.Name()]
		if !ok {
			continue // of mlx5dv.h only
		}
		twin := "no twin in mlx5dv.h"
		if s.c != "" {
			twin = "`" + s.c + "` of mlx5dv.h"
		}
		fmt.Fprintf(&b, "### `%s`\n\n`flexio.%s`, %d bytes, %s.\n\n", name, typ.Name(), s.size, twin)
		b.WriteString("| byte | reference | Go | type | mlx5dv.h |\n| --- | --- | --- | --- | --- |\n")
		at := offsets(s.v)
		for _, f := range reflect.VisibleFields(typ) {
			theirs := s.fields[f.Name]
			if theirs != "" {
				theirs = "`" + theirs + "`"
			}
			fmt.Fprintf(&b, "| %02x | `%s` | `%s` | %s | %s |\n", at[f.Name], f.Tag.Get("ref"), f.Name, strings.TrimPrefix(f.Type.String(), "flexio."), theirs)
		}
		b.WriteString("\n")
	}
	return b.String()
}
