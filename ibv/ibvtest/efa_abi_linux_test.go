package ibvtest_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// The distribution's kernel headers lack parts of efa_abi_kernel.h. These are compared with
// rdma-core 65 (commit 691953d8, kernel-headers/rdma/efa-abi.h and providers/efa/efa_io_defs.h), by
// the values from a compiler there. TestUverbsABIEqualsTheKernelsHeaders compares the other parts.
func TestEFAABIEqualsRDMACore(t *testing.T) {
	need.Tool(t, "gcc")
	var exprs []string
	var want []uint64
	for line := range strings.Lines(efaValues) {
		e, v, ok := strings.Cut(strings.TrimSpace(line), " = ")
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		exprs, want = append(exprs, e), append(want, n)
	}
	got, err := values(t, "gcc", "#include \"uverbs/efa_abi_kernel.h\"", exprs)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range exprs {
		if got[i] != want[i] {
			t.Errorf("%s is %d, want %d", e, got[i], want[i])
		}
	}
	t.Logf("%d values", len(got))
}

const efaValues = `
sizeof(struct efa_ibv_alloc_ucontext_cmd) = 8
offsetof(struct efa_ibv_alloc_ucontext_cmd, supported_caps) = 0
offsetof(struct efa_ibv_alloc_ucontext_cmd, reserved_20) = 4
sizeof(struct efa_ibv_alloc_ucontext_resp) = 24
offsetof(struct efa_ibv_alloc_ucontext_resp, comp_mask) = 0
offsetof(struct efa_ibv_alloc_ucontext_resp, cmds_supp_udata_mask) = 4
offsetof(struct efa_ibv_alloc_ucontext_resp, sub_cqs_per_cq) = 8
offsetof(struct efa_ibv_alloc_ucontext_resp, inline_buf_size) = 10
offsetof(struct efa_ibv_alloc_ucontext_resp, max_llq_size) = 12
offsetof(struct efa_ibv_alloc_ucontext_resp, max_tx_batch) = 16
offsetof(struct efa_ibv_alloc_ucontext_resp, min_sq_wr) = 18
offsetof(struct efa_ibv_alloc_ucontext_resp, inline_buf_size_ex) = 20
offsetof(struct efa_ibv_alloc_ucontext_resp, reserved_b0) = 22
sizeof(struct efa_ibv_create_qp) = 24
offsetof(struct efa_ibv_create_qp, flags) = 16
offsetof(struct efa_ibv_create_qp, sl) = 18
offsetof(struct efa_ibv_create_qp, reserved_98) = 19
sizeof(struct efa_io_tx_meta_desc) = 32
offsetof(struct efa_io_tx_meta_desc, req_id) = 0
offsetof(struct efa_io_tx_meta_desc, ctrl1) = 2
offsetof(struct efa_io_tx_meta_desc, ctrl2) = 3
offsetof(struct efa_io_tx_meta_desc, dest_qp_num) = 4
offsetof(struct efa_io_tx_meta_desc, length) = 6
offsetof(struct efa_io_tx_meta_desc, immediate_data) = 8
offsetof(struct efa_io_tx_meta_desc, ah) = 12
offsetof(struct efa_io_tx_meta_desc, ctrl3) = 14
offsetof(struct efa_io_tx_meta_desc, reserved) = 15
offsetof(struct efa_io_tx_meta_desc, qkey) = 16
offsetof(struct efa_io_tx_meta_desc, reserved2) = 20
offsetof(struct efa_io_tx_meta_desc, req_id_ex) = 26
sizeof(struct efa_io_tx_buf_desc) = 16
offsetof(struct efa_io_tx_buf_desc, length) = 0
offsetof(struct efa_io_tx_buf_desc, lkey) = 4
offsetof(struct efa_io_tx_buf_desc, buf_addr_lo) = 8
offsetof(struct efa_io_tx_buf_desc, buf_addr_hi) = 12
sizeof(struct efa_io_remote_mem_addr) = 16
offsetof(struct efa_io_remote_mem_addr, length) = 0
offsetof(struct efa_io_remote_mem_addr, rkey) = 4
offsetof(struct efa_io_remote_mem_addr, buf_addr_lo) = 8
offsetof(struct efa_io_remote_mem_addr, buf_addr_hi) = 12
sizeof(struct efa_io_tx_wqe_128) = 128
sizeof(struct efa_io_rx_desc) = 16
offsetof(struct efa_io_rx_desc, buf_addr_lo) = 0
offsetof(struct efa_io_rx_desc, buf_addr_hi) = 4
offsetof(struct efa_io_rx_desc, req_id) = 8
offsetof(struct efa_io_rx_desc, length) = 10
offsetof(struct efa_io_rx_desc, lkey_ctrl) = 12
sizeof(struct efa_io_rx_cdesc_ex) = 32
offsetof(struct efa_io_tx_wqe_128, data.rdma_req.remote_mem) = 32
offsetof(struct efa_io_tx_wqe_128, data.rdma_req.local_mem) = 48
offsetof(struct efa_io_tx_wqe_128, data.rdma_req.inline_data) = 48
offsetof(struct efa_io_tx_wqe_128, data.inline_data) = 32
offsetof(struct efa_io_tx_wqe_128, data.sgl) = 32
EFA_ALLOC_UCONTEXT_CMD_SUPP_CAPS_TX_BATCH = 1
EFA_ALLOC_UCONTEXT_CMD_SUPP_CAPS_MIN_SQ_WR = 2
EFA_QUERY_DEVICE_CAPS_RDMA_WRITE = 32
EFA_QUERY_DEVICE_CAPS_COMP_CNTR = 256
EFA_IB_ATTR_CREATE_COMP_CNTR_COMP_BUFFER = 4096
EFA_IB_ATTR_CREATE_COMP_CNTR_ERR_BUFFER = 4097
EFA_IO_SEND_QUEUE = 1
EFA_IO_RECV_QUEUE = 2
EFA_IO_SEND = 0
EFA_IO_RDMA_READ = 1
EFA_IO_RDMA_WRITE = 2
EFA_IO_COMP_STATUS_OK = 0
EFA_IO_COMP_STATUS_FLUSHED = 1
EFA_IO_COMP_STATUS_LOCAL_ERROR_QP_INTERNAL_ERROR = 2
EFA_IO_COMP_STATUS_LOCAL_ERROR_UNSUPPORTED_OP = 3
EFA_IO_COMP_STATUS_LOCAL_ERROR_INVALID_AH = 4
EFA_IO_COMP_STATUS_LOCAL_ERROR_INVALID_LKEY = 5
EFA_IO_COMP_STATUS_LOCAL_ERROR_BAD_LENGTH = 6
EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_ADDRESS = 7
EFA_IO_COMP_STATUS_REMOTE_ERROR_ABORT = 8
EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_DEST_QPN = 9
EFA_IO_COMP_STATUS_REMOTE_ERROR_RNR = 10
EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_LENGTH = 11
EFA_IO_COMP_STATUS_LOCAL_ERROR_UNREACH_REMOTE = 15
`
