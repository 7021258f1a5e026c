/* SPDX-License-Identifier: Apache-2.0
 *
 * rdma_states.c: which changes of a QP ibv_modify_qp(3) allows: the attributes that
 * a transition requires, and those that it takes beside them (InfiniBand specification,
 * 10.3.1; the kernel's ib_modify_qp_is_ok). */
#include "rdma_qp.h"

enum { RC = 1 << 0, UC = 1 << 1, UD = 1 << 2, RAW = 1 << 3 };

enum {
	BASE = IBV_QP_PKEY_INDEX | IBV_QP_PORT,
	PATH = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
	RC_RTR = PATH | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	RC_RTS = IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
	UC_LIVE = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE,
	RC_LIVE = UC_LIVE | IBV_QP_MIN_RNR_TIMER,
	UD_LIVE = IBV_QP_CUR_STATE | IBV_QP_QKEY,
	UC_SQD = IBV_QP_AV | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PATH_MIG_STATE,
	RC_SQD = UC_SQD | IBV_QP_PORT | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
		 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
};

static const struct {
	uint8_t types, from, to;
	int required, optional;
} transitions[] = {
	{RC | UC, IBV_QPS_RESET, IBV_QPS_INIT, BASE | IBV_QP_ACCESS_FLAGS, 0},
	{UD, IBV_QPS_RESET, IBV_QPS_INIT, BASE | IBV_QP_QKEY, 0},
	{RAW, IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PORT, 0},

	{RC | UC, IBV_QPS_INIT, IBV_QPS_INIT, 0, BASE | IBV_QP_ACCESS_FLAGS},
	{UD, IBV_QPS_INIT, IBV_QPS_INIT, 0, BASE | IBV_QP_QKEY},
	{RAW, IBV_QPS_INIT, IBV_QPS_INIT, 0, 0},

	{RC, IBV_QPS_INIT, IBV_QPS_RTR, RC_RTR, IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
	{UC, IBV_QPS_INIT, IBV_QPS_RTR, PATH, IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
	{UD, IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
	{RAW, IBV_QPS_INIT, IBV_QPS_RTR, 0, 0},

	{RC, IBV_QPS_RTR, IBV_QPS_RTS, RC_RTS, RC_LIVE},
	{UC, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, UC_LIVE},
	{UD, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, UD_LIVE},
	{RAW, IBV_QPS_RTR, IBV_QPS_RTS, 0, IBV_QP_RATE_LIMIT},

	{RC, IBV_QPS_RTS, IBV_QPS_RTS, 0, RC_LIVE},
	{UC, IBV_QPS_RTS, IBV_QPS_RTS, 0, UC_LIVE},
	{UD, IBV_QPS_RTS, IBV_QPS_RTS, 0, UD_LIVE},
	{RAW, IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_RATE_LIMIT},

	{RC | UC | UD, IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
	{RAW, IBV_QPS_RTS, IBV_QPS_SQD, 0, 0},

	{RC, IBV_QPS_SQD, IBV_QPS_RTS, 0, RC_LIVE},
	{UC, IBV_QPS_SQD, IBV_QPS_RTS, 0, UC_LIVE},
	{UD, IBV_QPS_SQD, IBV_QPS_RTS, 0, UD_LIVE},
	{RAW, IBV_QPS_SQD, IBV_QPS_RTS, 0, 0},

	{RC, IBV_QPS_SQD, IBV_QPS_SQD, 0, RC_SQD},
	{UC, IBV_QPS_SQD, IBV_QPS_SQD, 0, UC_SQD},
	{UD, IBV_QPS_SQD, IBV_QPS_SQD, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
	{RAW, IBV_QPS_SQD, IBV_QPS_SQD, 0, 0},

	{UC, IBV_QPS_SQE, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS},
	{UD, IBV_QPS_SQE, IBV_QPS_RTS, 0, UD_LIVE},
};

static uint8_t type_bit(uint32_t type)
{
	switch (type) {
	case IBV_QPT_RC:
		return RC;
	case IBV_QPT_UC:
		return UC;
	case IBV_QPT_UD:
		return UD;
	case IBV_QPT_RAW_PACKET:
		return RAW;
	default:
		return 0;
	}
}

bool rdma_transition(uint32_t type, uint32_t from, uint32_t to, int mask)
{
	int given = mask & ~IBV_QP_STATE;
	/* From anywhere, with nothing beside; except that RESET has nothing to fail. */
	if (to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET))
		return !given;
	for (size_t i = 0; i < sizeof(transitions) / sizeof(transitions[0]); i++) {
		int required = transitions[i].required;
		if ((transitions[i].types & type_bit(type)) && transitions[i].from == from && transitions[i].to == to)
			return (given & required) == required && !(given & ~(required | transitions[i].optional));
	}
	return false;
}
