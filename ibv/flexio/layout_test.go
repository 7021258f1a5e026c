package flexio

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// twins are the structures of mlx5dv.h that are those of the reference, and the names of their fields.
var twins = map[string]struct {
	c      string
	fields map[string]string // by the reference's name
}{
	"flexio_dev_cqe64": {"mlx5_cqe64", map[string]string{
		"srqn_uidx": "srqn_uidx", "imm_inval_pkey": "imm_inval_pkey", "byte_cnt": "byte_cnt", "rsvd48": "timestamp", "qpn": "sop_drop_qpn",
		"sop_rdrop": "sop_drop_qpn", "wqe_counter": "wqe_counter", "signature": "signature", "op_own": "op_own", "rsvd22": "slid", "rsvd40": "app",
	}},
	// mlx5dv.h has neither flexio_dev_mini_cqe64 nor flexio_dev_eqe: see TestFieldsDecodeFromTheirBytes
	"flexio_dev_wqe_ctrl_seg": {"mlx5_wqe_ctrl_seg", map[string]string{
		"idx_opcode": "opmod_idx_opcode", "qpn_ds": "qpn_ds", "signature_fm_ce_se": "signature", "general_id": "imm",
	}},
	"flexio_dev_wqe_atomic_seg": {"mlx5_wqe_atomic_seg", map[string]string{"swap_or_add_data": "swap_add", "compare_data": "compare"}},
	"flexio_dev_wqe_datagram_seg": {"mlx5_wqe_av", map[string]string{
		"dc_key": "key", "qkey": "key", "ext_dqp_dct": "dqp_dct", "stat_rate_sl": "stat_rate_sl", "fl_mlid": "fl_mlid", "rlid_sport": "rlid",
		"reserved0": "reserved0", "rmac": "rmac", "tclass": "tclass", "hop_limit": "hop_limit", "grh_gid_fl": "grh_gid_fl", "rgid": "rgid",
	}},
	"flexio_dev_wqe_eth_seg": {"mlx5_wqe_eth_seg", map[string]string{ // which is longer: its inline headers go on
		"rsvd0": "rsvd0", "cs_swp_flags": "cs_flags", "mss": "mss", "rsvd2": "rsvd2", "inline_hdr_bsz": "inline_hdr_sz", "inline_hdrs": "inline_hdr_start",
	}},
	"flexio_dev_wqe_inline_send_data_seg":  {"mlx5_wqe_inl_data_seg", map[string]string{"byte_count": "byte_count"}},
	"flexio_dev_wqe_mem_ptr_send_data_seg": {"mlx5_wqe_data_seg", map[string]string{"byte_count": "byte_count", "lkey": "lkey", "addr": "addr"}},
	"flexio_dev_wqe_rcv_data_seg":          {"mlx5_wqe_data_seg", map[string]string{"byte_count": "byte_count", "lkey": "lkey", "addr": "addr"}},
	"flexio_dev_wqe_rdma_seg":              {"mlx5_wqe_raddr_seg", map[string]string{"raddr": "raddr", "rkey": "rkey", "rsvd0": "reserved"}},
	"flexio_dev_wqe_shared_receive_seg": {"mlx5_wqe_srq_next_seg", map[string]string{
		"rsvd0": "rsvd0", "next_wqe_index": "next_wqe_index", "signature": "signature", "rsvd1": "rsvd1",
	}},
}

// The compiler tells the place of each field in mlx5dv.h, and the values of its constants.
func TestStructsEqualTheHeader(t *testing.T) {
	need.Tool(t, "cc")
	need.Header(t, "infiniband/mlx5dv.h")
	var c bytes.Buffer
	c.WriteString("#include <infiniband/mlx5dv.h>\n#include <stddef.h>\n")
	check := func(cond, what string) { c.WriteString("_Static_assert(" + cond + ", \"" + what + "\");\n") }
	for structure, s := range twins {
		for ours, theirs := range s.fields {
			check(expr("(int)offsetof(struct "+s.c+", "+theirs+") == ", byteOf(t, structure, ours)), s.c+"."+theirs)
		}
		op := expr("(int)sizeof(struct "+s.c+") == ", queueTables[structure].size)
		if slices.Contains([]string{"mlx5_wqe_eth_seg", "mlx5_wqe_inl_data_seg"}, s.c) { // goes on, or is the head only
			continue
		}
		check(op, s.c)
	}
	for name, v := range map[string]int{
		"MLX5_CQE_REQ": int(OpReq), "MLX5_CQE_RESP_WR_IMM": int(OpRespWrImm), "MLX5_CQE_RESP_SEND": int(OpRespSend),
		"MLX5_CQE_RESP_SEND_IMM": int(OpRespImm), "MLX5_CQE_RESP_SEND_INV": int(OpRespInv), "MLX5_CQE_RESIZE_CQ": int(OpResize),
		"MLX5_CQE_NO_PACKET": int(OpNoPacket), "MLX5_CQE_SIG_ERR": int(OpSigErr), "MLX5_CQE_REQ_ERR": int(OpReqErr),
		"MLX5_CQE_RESP_ERR": int(OpRespErr), "MLX5_CQE_INVALID": int(OpInvalidCQE),
		"MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR": int(SyndromeLocalLength), "MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR": int(SyndromeLocalQPOp),
		"MLX5_CQE_SYNDROME_LOCAL_PROT_ERR": int(SyndromeLocalProt), "MLX5_CQE_SYNDROME_WR_FLUSH_ERR": int(SyndromeWRFlush),
		"MLX5_CQE_SYNDROME_MW_BIND_ERR": int(SyndromeMWBind), "MLX5_CQE_SYNDROME_BAD_RESP_ERR": int(SyndromeBadResp),
		"MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR": int(SyndromeLocalAccess), "MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR": int(SyndromeRemoteInvalReq),
		"MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR": int(SyndromeRemoteAccess), "MLX5_CQE_SYNDROME_REMOTE_OP_ERR": int(SyndromeRemoteOp),
		"MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR": int(SyndromeTransportRetries), "MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR": int(SyndromeRNRRetries),
		"MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR": int(SyndromeRemoteAborted),
		"MLX5_INLINE_SEG":                      1 << 31, // of byte_count
	} {
		check(expr(name+" == ", v), name)
	}
	src := filepath.Join(t.TempDir(), "layout.c")
	if err := os.WriteFile(src, c.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-std=gnu11", "-fsyntax-only", src).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if asserts := strings.Count(c.String(), "_Static_assert"); asserts < 75 {
		t.Errorf("only %d places were compared", asserts)
	}
}

func expr(left string, right int) string { return left + strconv.Itoa(right) }

// byteOf is the byte at which a field begins.
func byteOf(t *testing.T, structure, name string) int {
	t.Helper()
	return row(t, refField{strct: structure, name: name}).first / 8
}
