package flexio

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// The compiler tells which fields mlx5dv.h has where the reference has another field, or none
// (docs/flexio.md).
func TestHeaderDisagreesWithTheReference(t *testing.T) {
	need.Tool(t, "cc")
	need.Header(t, "infiniband/mlx5dv.h")
	cqe := func(name string) int { return byteOf(t, "flexio_dev_cqe64", name) }
	eth := func(name string) int { return byteOf(t, "flexio_dev_wqe_eth_seg", name) }
	ctrl := func(name string) int { return byteOf(t, "flexio_dev_wqe_ctrl_seg", name) }
	var c bytes.Buffer
	c.WriteString("#include <infiniband/mlx5dv.h>\n#include <stddef.h>\n")
	for what, cond := range map[string]string{
		"wqe_id is within rsvd00":               expr("offsetof(struct mlx5_cqe64, wqe_id) == 2 && sizeof(((struct mlx5_cqe64 *)0)->wqe_id) + 2 <= ", cqe("csum_ok")),
		"csum_ok is within rsvd20":              expr("offsetof(struct mlx5_cqe64, rsvd20) <= 20 && offsetof(struct mlx5_cqe64, slid) - 2 == ", cqe("csum_ok")),
		"the ok bits are elsewhere":             expr("offsetof(struct mlx5_cqe64, hds_ip_ext) == 4 + ", cqe("rsvd24")),
		"the timestamp begins at rsvd48":        expr("offsetof(struct mlx5_cqe64, timestamp) == ", cqe("rsvd48")),
		"and ends behind syndrome":              expr("offsetof(struct mlx5_cqe64, timestamp) + 8 == 1 + ", cqe("syndrome")),
		"an error has its syndrome there":       expr("offsetof(struct mlx5_err_cqe, syndrome) == ", cqe("syndrome")),
		"and an error entry is as long":         expr("sizeof(struct mlx5_err_cqe) == ", queueTables["flexio_dev_cqe64"].size),
		"and the QP's number":                   expr("offsetof(struct mlx5_err_cqe, s_wqe_opcode_qpn) == ", cqe("qpn")),
		"and the WQE's":                         expr("offsetof(struct mlx5_err_cqe, wqe_counter) == ", cqe("wqe_counter")),
		"and the opcode":                        expr("offsetof(struct mlx5_err_cqe, op_own) == ", cqe("op_own")),
		"and the vendor's":                      expr("offsetof(struct mlx5_err_cqe, vendor_err_synd) == ", cqe("vendor_err_synd")),
		"sop and QPN are one word":              expr("sizeof(((struct mlx5_cqe64 *)0)->sop_drop_qpn) == 4 && offsetof(struct mlx5_cqe64, sop_drop_qpn) == ", cqe("sop_rdrop")),
		"the Ethernet segment goes on":          "sizeof(struct mlx5_wqe_eth_seg) == 32",
		"cs_swp_flags are two":                  expr("offsetof(struct mlx5_wqe_eth_seg, rsvd1) == 1 + ", eth("cs_swp_flags")),
		"signature_fm_ce_se is three":           expr("offsetof(struct mlx5_wqe_ctrl_seg, fm_ce_se) == 3 + ", ctrl("signature_fm_ce_se")),
		"of which the DCI stream is in between": expr("offsetof(struct mlx5_wqe_ctrl_seg, dci_stream_channel_id) == 1 + ", ctrl("signature_fm_ce_se")),
	} {
		c.WriteString("_Static_assert(" + cond + ", \"" + what + "\");\n")
	}
	src := filepath.Join(t.TempDir(), "disagree.c")
	if err := os.WriteFile(src, c.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-std=gnu11", "-fsyntax-only", src).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// The places are those of mlx5_mini_cqe8 (include/linux/mlx5/device.h). libmlx5 and UCX have the
// same.
func TestMiniCQEFieldsLieWhereLinuxHasThem(t *testing.T) {
	m := miniCQE{1, 2, 3, 4, 5, 6, 7, 8}
	if m.wqeCounter() != 0x0102 || m.sWQEOpcode() != 3 || m.hash() != 0x01020304 || m.byteCnt() != 0x05060708 {
		t.Errorf("counter %#x, opcode %#x, hash %#x, bytes %#x", m.wqeCounter(), m.sWQEOpcode(), m.hash(), m.byteCnt())
	}
	if sum, stride := m.checksum(); sum != 0x0102 || stride != 0x0304 {
		t.Errorf("checksum %#x, stride %#x", sum, stride)
	}
}
