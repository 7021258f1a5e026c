package ibvtest_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/flowtally/flowtally/internal/lab/need"
)

// efaNewer are additions since the distribution's kernel headers. The descriptors (efa_io) are in no package.
var efaNewer = regexp.MustCompile(`efa_io|EFA_IO|supported_caps|_SUPP_CAPS_|alloc_ucontext|create_qp\)|create_qp, (flags|sl|reserved)|RDMA_WRITE|COMP_CNTR`)

// TestEFAABI compares efa_abi_kernel.h with rdma-core 65 (commit 691953d8, kernel-headers/rdma/efa-abi.h and
// providers/efa/efa_io_defs.h), by the values that a compiler gives there, and with the kernel headers of the distribution.
func TestEFAABI(t *testing.T) {
	need.Tool(t, "gcc")
	need.Header(t, "rdma/efa-abi.h")
	var exprs, installed []string
	want := make(map[string]uint64)
	for line := range strings.Lines(efaValues) {
		e, v, ok := strings.Cut(strings.TrimSpace(line), " = ")
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		exprs, want[e] = append(exprs, e), n
		if !efaNewer.MatchString(e) {
			installed = append(installed, e)
		}
	}
	for _, c := range []struct {
		include string
		exprs   []string
	}{{"#include \"uverbs/efa_abi_kernel.h\"", exprs}, {"#include <rdma/efa-abi.h>", installed}} {
		got, err := values(t, "gcc", c.include, c.exprs)
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range c.exprs {
			if got[i] != want[e] {
				t.Errorf("%s: %s is %d, want %d", c.include, e, got[i], want[e])
			}
		}
		t.Logf("%s: %d values", c.include, len(got))
	}
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
sizeof(struct efa_ibv_alloc_pd_resp) = 8
offsetof(struct efa_ibv_alloc_pd_resp, comp_mask) = 0
offsetof(struct efa_ibv_alloc_pd_resp, pdn) = 4
offsetof(struct efa_ibv_alloc_pd_resp, reserved_30) = 6
sizeof(struct efa_ibv_create_cq) = 16
offsetof(struct efa_ibv_create_cq, comp_mask) = 0
offsetof(struct efa_ibv_create_cq, cq_entry_size) = 4
offsetof(struct efa_ibv_create_cq, num_sub_cqs) = 8
offsetof(struct efa_ibv_create_cq, flags) = 10
offsetof(struct efa_ibv_create_cq, reserved_58) = 11
sizeof(struct efa_ibv_create_cq_resp) = 40
offsetof(struct efa_ibv_create_cq_resp, comp_mask) = 0
offsetof(struct efa_ibv_create_cq_resp, reserved_20) = 4
offsetof(struct efa_ibv_create_cq_resp, q_mmap_key) = 8
offsetof(struct efa_ibv_create_cq_resp, q_mmap_size) = 16
offsetof(struct efa_ibv_create_cq_resp, cq_idx) = 24
offsetof(struct efa_ibv_create_cq_resp, reserved_d0) = 26
offsetof(struct efa_ibv_create_cq_resp, db_off) = 28
offsetof(struct efa_ibv_create_cq_resp, db_mmap_key) = 32
sizeof(struct efa_ibv_create_qp) = 24
offsetof(struct efa_ibv_create_qp, comp_mask) = 0
offsetof(struct efa_ibv_create_qp, rq_ring_size) = 4
offsetof(struct efa_ibv_create_qp, sq_ring_size) = 8
offsetof(struct efa_ibv_create_qp, driver_qp_type) = 12
offsetof(struct efa_ibv_create_qp, flags) = 16
offsetof(struct efa_ibv_create_qp, sl) = 18
offsetof(struct efa_ibv_create_qp, reserved_98) = 19
sizeof(struct efa_ibv_create_qp_resp) = 64
offsetof(struct efa_ibv_create_qp_resp, comp_mask) = 0
offsetof(struct efa_ibv_create_qp_resp, rq_db_offset) = 4
offsetof(struct efa_ibv_create_qp_resp, sq_db_offset) = 8
offsetof(struct efa_ibv_create_qp_resp, llq_desc_offset) = 12
offsetof(struct efa_ibv_create_qp_resp, rq_mmap_key) = 16
offsetof(struct efa_ibv_create_qp_resp, rq_mmap_size) = 24
offsetof(struct efa_ibv_create_qp_resp, rq_db_mmap_key) = 32
offsetof(struct efa_ibv_create_qp_resp, sq_db_mmap_key) = 40
offsetof(struct efa_ibv_create_qp_resp, llq_desc_mmap_key) = 48
offsetof(struct efa_ibv_create_qp_resp, send_sub_cq_idx) = 56
offsetof(struct efa_ibv_create_qp_resp, recv_sub_cq_idx) = 58
offsetof(struct efa_ibv_create_qp_resp, reserved_1e0) = 60
sizeof(struct efa_ibv_create_ah_resp) = 8
offsetof(struct efa_ibv_create_ah_resp, comp_mask) = 0
offsetof(struct efa_ibv_create_ah_resp, efa_address_handle) = 4
offsetof(struct efa_ibv_create_ah_resp, reserved_30) = 6
sizeof(struct efa_ibv_ex_query_device_resp) = 24
offsetof(struct efa_ibv_ex_query_device_resp, comp_mask) = 0
offsetof(struct efa_ibv_ex_query_device_resp, max_sq_wr) = 4
offsetof(struct efa_ibv_ex_query_device_resp, max_rq_wr) = 8
offsetof(struct efa_ibv_ex_query_device_resp, max_sq_sge) = 12
offsetof(struct efa_ibv_ex_query_device_resp, max_rq_sge) = 14
offsetof(struct efa_ibv_ex_query_device_resp, max_rdma_size) = 16
offsetof(struct efa_ibv_ex_query_device_resp, device_caps) = 20
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
EFA_USER_CMDS_SUPP_UDATA_QUERY_DEVICE = 1
EFA_USER_CMDS_SUPP_UDATA_CREATE_AH = 2
EFA_ALLOC_UCONTEXT_CMD_SUPP_CAPS_TX_BATCH = 1
EFA_ALLOC_UCONTEXT_CMD_SUPP_CAPS_MIN_SQ_WR = 2
EFA_QP_DRIVER_TYPE_SRD = 0
EFA_QUERY_DEVICE_CAPS_RDMA_READ = 1
EFA_QUERY_DEVICE_CAPS_RNR_RETRY = 2
EFA_QUERY_DEVICE_CAPS_CQ_WITH_SGID = 8
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
