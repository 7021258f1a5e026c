package flexio

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// structs are all of Struct, each with the structure of mlx5dv.h that it is, if
// there is one, and the fields that go by another name there.
var structs = []struct {
	v      any
	size   int
	c      string
	fields map[string]string // ours: theirs; "" where theirs is a part of something else
}{
	{CQE64{}, 64, "mlx5_cqe64", map[string]string{
		"SRQNUidx": "srqn_uidx", "ImmInvalPkey": "imm_inval_pkey", "ByteCnt": "byte_cnt", "Rsvd48": "timestamp",
		"SopRdrop": "sop_drop_qpn", "WQECounter": "wqe_counter", "Signature": "signature", "OpOwn": "op_own", "Rsvd22": "slid", "Rsvd40": "app",
	}},
	{ErrCQE{}, 64, "mlx5_err_cqe", map[string]string{
		"Rsvd0": "rsvd0", "SRQN": "srqn", "Rsvd1": "rsvd1", "VendorErrSynd": "vendor_err_synd", "Syndrome": "syndrome",
		"SWQEOpcodeQPN": "s_wqe_opcode_qpn", "WQECounter": "wqe_counter", "Signature": "signature", "OpOwn": "op_own",
	}},
	{MiniCQEBlock{}, 64, "", nil}, // mlx5dv.h has neither it nor the EQE: see TestFieldsDecodeFromTheirBytes
	{EQE{}, 64, "", nil},
	{CtrlSeg{}, 16, "mlx5_wqe_ctrl_seg", map[string]string{
		"IdxOpcode": "opmod_idx_opcode", "QPNDS": "qpn_ds", "SignatureFMCESE": "signature", "GeneralID": "imm",
	}},
	{AtomicSeg{}, 16, "mlx5_wqe_atomic_seg", map[string]string{"SwapOrAddData": "swap_add", "CompareData": "compare"}},
	{DatagramSeg{}, 48, "mlx5_wqe_av", map[string]string{
		"QKey": "key", "ExtDqpDct": "dqp_dct", "StatRateSL": "stat_rate_sl", "FlMlid": "fl_mlid", "RlidSport": "rlid", "Reserved0": "reserved0",
		"RMAC": "rmac", "TClass": "tclass", "HopLimit": "hop_limit", "GRHGIDFl": "grh_gid_fl", "RGID": "rgid",
	}},
	{EthSeg{}, 16, "mlx5_wqe_eth_seg", map[string]string{ // which is longer: its inline headers go on
		"Rsvd0": "rsvd0", "CSSWPFlags": "cs_flags", "MSS": "mss", "Rsvd2": "rsvd2", "InlineHdrBsz": "inline_hdr_sz", "InlineHdrs": "inline_hdr_start",
	}},
	{InlineDataSeg{}, 16, "", nil},
	{InlineSendDataSeg{}, 16, "mlx5_wqe_inl_data_seg", map[string]string{"ByteCount": "byte_count"}},
	{MemPtrSendDataSeg{}, 16, "mlx5_wqe_data_seg", map[string]string{"ByteCount": "byte_count", "LKey": "lkey", "Addr": "addr"}},
	{RcvDataSeg{}, 16, "mlx5_wqe_data_seg", map[string]string{"ByteCount": "byte_count", "LKey": "lkey", "Addr": "addr"}},
	{RDMASeg{}, 16, "mlx5_wqe_raddr_seg", map[string]string{"RAddr": "raddr", "RKey": "rkey", "Rsvd0": "reserved"}},
	{SharedReceiveSeg{}, 16, "mlx5_wqe_srq_next_seg", map[string]string{
		"Rsvd0": "rsvd0", "NextWQEIndex": "next_wqe_index", "Signature": "signature", "Rsvd1": "rsvd1",
	}},
	{TransposeSeg{}, 16, "", nil},
	{WaitOnDataSeg{}, 16, "", nil},
	{WaitOnDataDataSeg{}, 16, "", nil},
}

// offsets of the fields in queue memory, where there are no holes.
func offsets(v any) map[string]int {
	at, out := 0, make(map[string]int)
	for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
		out[f.Name] = at
		at += int(f.Type.Size()) // arrays and integers: no padding within
	}
	out[""] = at
	return out
}

func TestStructsHaveTheirSizes(t *testing.T) {
	for _, s := range structs {
		typ := reflect.TypeOf(s.v)
		if got := offsets(s.v)[""]; got != s.size {
			t.Errorf("%s has %d bytes, want %d", typ.Name(), got, s.size)
		}
	}
}

// The compiler tells the place of each field in mlx5dv.h, and the values of its constants.
func TestStructsEqualTheHeader(t *testing.T) {
	need.Tool(t, "cc")
	need.Header(t, "infiniband/mlx5dv.h")
	var c bytes.Buffer
	c.WriteString("#include <infiniband/mlx5dv.h>\n#include <stddef.h>\n")
	check := func(cond, what string) { c.WriteString("_Static_assert(" + cond + ", \"" + what + "\");\n") }
	for _, s := range structs {
		if s.c == "" {
			continue
		}
		at := offsets(s.v)
		for ours, theirs := range s.fields {
			off, ok := at[ours]
			if !ok {
				t.Fatalf("%T has no field %s", s.v, ours)
			}
			check(expr("(int)offsetof(struct "+s.c+", "+theirs+") == ", off), s.c+"."+theirs)
		}
		op := expr("(int)sizeof(struct "+s.c+") == ", s.size)
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
		"MLX5_INLINE_SEG":                      InlineSeg,
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
	if asserts := strings.Count(c.String(), "_Static_assert"); asserts < 80 {
		t.Errorf("only %d places were compared", asserts)
	}
}

func expr(left string, right int) string { return left + strconv.Itoa(right) }
