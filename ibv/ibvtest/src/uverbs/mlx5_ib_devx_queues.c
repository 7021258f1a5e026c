/* SPDX-License-Identifier: Apache-2.0
 *
 * mlx5_ib_devx_queues.c: completion queues and queue pairs of type RC by DevX, as mlx5_ib's devx.c and firmware have
 * them: memory of the user (umem), the numbers of event queues, CREATE_CQ, CREATE_QP, the changes of a queue pair's state,
 * and QUERY_QP. A completion queue may be collapsed (cc), and may ignore overruns (oi).
 *
 * A queue pair belongs to the same card as those of the verbs, so that the two kinds talk to each other. Neither kind of
 * queue made here has events: the kernel sends those of DevX objects to channels that nobody here subscribes to. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mlx5_hw.h"
#include "mlx5_ib_flow.h"

enum {
	CREATE_CQ = 0x400,
	CREATE_QP = 0x500,
	RST2INIT_QP = 0x502,
	INIT2RTR_QP = 0x503,
	RTR2RTS_QP = 0x504,
	TOERR_QP = 0x507,
	TORST_QP = 0x50a,
	QUERY_QP = 0x50b,

	STATUS_BAD_RES = 0x05,
	STATUS_BAD_QP_STATE = 0x10,

	CQC = 0x80, /* bits before the context in CREATE_CQ */
	QPC = 0xc0, /* and in commands of queue pairs */
	PATH = QPC + 0xc0,
	CREATE_BYTES = 272,
	MODIFY_BYTES = 272,
	QUERY_OUT_BYTES = 272,
	FIRST_EQN = 5, /* of the completion vectors */

	MAX_LOG_CQ = 22,
	MAX_LOG_WQ = 15,
	BLOCK = 64,
	ST_RC = 0,
	REGULAR_RQ = 0,
	ZERO_RQ = 3,
	ANY_STATE = 0xff,
};

struct mlx5_umem {
	struct uv_object object; /* uses: queues in it */
	uint64_t addr, length;
	uint32_t id;
};

/* mlx5_devx_queue is what a DevX object has: a completion queue or a queue pair. */
struct mlx5_devx_queue {
	struct mlx5_ib_cq *cq;
	struct mlx5_ib_qp *qp;
	struct uv_object *used[6]; /* of other objects */
	unsigned uses;
};

#define HEADER_FIELDS {0x00, 16}, {0x10, 16}, {0x30, 16}
static const struct mlx5_field cq_fields[] = {
	HEADER_FIELDS,
	{CQC + 0x06, 1}, {CQC + 0x08, 3}, {CQC + 0x0b, 1}, {CQC + 0x0e, 1}, {CQC + 0x0f, 2}, {CQC + 0x20, 32},
	{CQC + 0x63, 5}, {CQC + 0x68, 24}, {CQC + 0x84, 12}, {CQC + 0x90, 16}, {CQC + 0xb8, 8}, {CQC + 0xc3, 5},
	{CQC + 0x1c0, 32}, {CQC + 0x1e0, 32}, {0x280, 32}, {0x2a0, 32}, {0x2c0, 32}, {0x2e0, 1},
};
static const struct mlx5_field qp_fields[] = {
	HEADER_FIELDS,
	{QPC + 0x08, 8}, {QPC + 0x13, 2}, {QPC + 0x28, 24}, {QPC + 0x49, 4}, {QPC + 0x4d, 3}, {QPC + 0x50, 1}, {QPC + 0x51, 4},
	{QPC + 0x58, 2}, {QPC + 0x68, 24}, {QPC + 0x88, 24}, {QPC + 0xa3, 5}, {QPC + 0x3e8, 24}, {QPC + 0x4e8, 24},
	{QPC + 0x500, 32}, {QPC + 0x520, 32}, {QPC + 0x565, 3}, {QPC + 0x683, 1}, {QPC + 0x720, 32},
	{0x800, 32}, {0x820, 32}, {0x840, 32}, {0x860, 1},
};
#define MODIFY_FIELDS HEADER_FIELDS, {0x48, 24}, {0x80, 32}
static const struct mlx5_field init_fields[] = {
	MODIFY_FIELDS, {QPC + 0x13, 2}, {QPC + 0x490, 1}, {QPC + 0x491, 1}, {PATH + 0x10, 16}, {PATH + 0x128, 8},
};
static const struct mlx5_field rtr_fields[] = {
	MODIFY_FIELDS, {QPC + 0x40, 3}, {QPC + 0x43, 5}, {QPC + 0xa8, 24}, {QPC + 0x488, 3}, {QPC + 0x4a3, 5}, {QPC + 0x4a8, 24},
	{PATH + 0x28, 1}, {PATH + 0x29, 7}, {PATH + 0x30, 16}, {PATH + 0x48, 8}, {PATH + 0x54, 4}, {PATH + 0x58, 8},
	{PATH + 0x64, 8}, {PATH + 0x6c, 20}, {PATH + 0x80, 32}, {PATH + 0xa0, 32}, {PATH + 0xc0, 32}, {PATH + 0xe0, 32},
	{PATH + 0x110, 16}, {PATH + 0x121, 3}, {PATH + 0x124, 4}, {PATH + 0x128, 8}, {PATH + 0x130, 16}, {PATH + 0x140, 32},
};
static const struct mlx5_field rts_fields[] = {
	MODIFY_FIELDS, {QPC + 0x388, 3}, {QPC + 0x38d, 3}, {QPC + 0x390, 3}, {QPC + 0x3c8, 24}, {PATH + 0x40, 5}, {PATH + 0x128, 8},
};
static const struct mlx5_field state_fields[] = {HEADER_FIELDS, {0x48, 24}};

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* The form of a command, as firmware checks it. */
static int form(const uint8_t *in, size_t inlen, size_t size, const struct mlx5_field *fields, unsigned n, uint8_t *out,
		size_t outlen, size_t needed)
{
	memset(out, 0, outlen);
	if (inlen < size)
		return mlx5_answer(out, outlen, MLX5_STATUS_BAD_INPUT_LEN, MLX5_SYNDROME_LENGTH + size);
	int bit = mlx5_reserved(in, inlen, fields, n);
	if (bit >= 0)
		return mlx5_answer(out, outlen, MLX5_STATUS_BAD_PARAM, MLX5_SYNDROME_BIT + bit);
	if (outlen < needed)
		return mlx5_answer(out, outlen, MLX5_STATUS_BAD_OUTPUT_LEN, MLX5_SYNDROME_LENGTH + needed);
	return 0;
}

static uint64_t get64(const uint8_t *in, unsigned bit)
{
	return (uint64_t)mlx5_get(in, bit, 32) << 32 | mlx5_get(in, bit + 32, 32);
}

static int refuse(uint8_t *out, size_t outlen, uint8_t status, unsigned bit)
{
	return mlx5_answer(out, outlen, status, MLX5_SYNDROME_BIT + bit);
}

static void use(struct mlx5_devx_queue *q, struct uv_object *o)
{
	o->uses++;
	q->used[q->uses++] = o;
}

/* --- Memory and event queues ------------------------------------------------------------------------------------ */

static int reg_umem(struct uv_call *call)
{
	struct mlx5_umem *u = (struct mlx5_umem *)uv_attr_object(call, MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE);
	uint64_t access;
	uint8_t byte;
	int err = mlx5_ib_has_devx(call);
	if (!err)
		err = uv_copy_from(call, MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, &u->addr, sizeof(u->addr));
	if (!err)
		err = uv_copy_from(call, MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, &u->length, sizeof(u->length));
	if (!err)
		err = uv_get_flags(call, MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, &access);
	if (!err && (access & IBV_ACCESS_REMOTE_WRITE) && !(access & IBV_ACCESS_LOCAL_WRITE))
		err = EINVAL;
	if (!err && (!u->length || u->addr + u->length < u->addr))
		err = EINVAL;
	if (!err)
		err = uv_copy_from_user(call->task, &byte, u->addr, 1);
	if (!err)
		err = uv_copy_from_user(call->task, &byte, u->addr + u->length - 1, 1);
	if (!err)
		err = uv_gate(call->device, "CREATE_UMEM");
	if (err)
		return err;
	u->id = mlx5_ib_number();
	return uv_copy_to(call, MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, &u->id, sizeof(u->id));
}

static int query_eqn(struct uv_call *call)
{
	uint32_t vector, eqn;
	int err = mlx5_ib_has_devx(call);
	if (!err)
		err = uv_copy_from(call, MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, &vector, sizeof(vector));
	if (err)
		return err;
	if (vector >= call->device->ops->num_comp_vectors)
		return ENOENT;
	eqn = FIRST_EQN + vector;
	return uv_copy_to(call, MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, &eqn, sizeof(eqn));
}

/* Finds n bytes at an offset of a umem: false without it. */
static struct mlx5_umem *memory(const struct uv_file *file, uint32_t id, uint64_t offset, uint64_t n)
{
	for (struct uv_object *o = file->objects; o; o = o->next) {
		struct mlx5_umem *u = (struct mlx5_umem *)o;
		if (o->type != MLX5_IB_OBJECT_DEVX_UMEM || !o->committed || u->id != id)
			continue;
		return offset <= u->length && n <= u->length - offset ? u : NULL;
	}
	return NULL;
}

/* --- Completion queues ------------------------------------------------------------------------------------------ */

static int create_cq(struct uv_call *call, struct mlx5_devx_obj *obj, uint8_t *in, size_t inlen, uint8_t *out, size_t outlen)
{
	struct uv_file *file = obj->object.file;
	int err = uv_gate(call->device, "CREATE_CQ");
	if (err)
		return err;
	if (inlen >= CREATE_BYTES) { /* devx_set_umem_valid */
		mlx5_set(in, 0x2e0, 1, 1);
		mlx5_set(in, CQC + 0x06, 1, 1);
	}
	if ((err = form(in, inlen, CREATE_BYTES, cq_fields, COUNT(cq_fields), out, outlen, MLX5_COMMAND_OUT)))
		return err;
	uint32_t eqn = mlx5_get(in, CQC + 0xb8, 8), size = mlx5_get(in, CQC + 0x08, 3);
	if (eqn < FIRST_EQN || eqn >= FIRST_EQN + call->device->ops->num_comp_vectors)
		return ENOENT; /* mlx5_eqn2comp_eq */
	unsigned log = mlx5_get(in, CQC + 0x63, 5);
	if (log > MAX_LOG_CQ)
		return refuse(out, outlen, MLX5_STATUS_BAD_PARAM, CQC + 0x63);
	if (size > 1)
		return refuse(out, outlen, MLX5_STATUS_BAD_PARAM, CQC + 0x08);
	if (!mlx5_ib_has_uar(file, mlx5_get(in, CQC + 0x68, 24)))
		return refuse(out, outlen, STATUS_BAD_RES, CQC + 0x68);
	uint64_t ring = get64(in, 0x280), db = get64(in, CQC + 0x1c0);
	struct mlx5_umem *u = memory(file, mlx5_get(in, 0x2c0, 32), ring, (uint64_t)(64 << size) << log);
	if (!u)
		return refuse(out, outlen, STATUS_BAD_RES, 0x2c0);
	struct mlx5_umem *v = memory(file, mlx5_get(in, CQC + 0x20, 32), db, 8);
	if (!v || (v->addr + db) & 7)
		return refuse(out, outlen, STATUS_BAD_RES, CQC + 0x20);

	struct mlx5_devx_queue *q = obj->queue = calloc(1, sizeof(*q));
	if (!q || !(q->cq = calloc(1, sizeof(*q->cq))))
		return ENOMEM;
	struct mlx5_ib_cq *c = q->cq;
	rdma_link_init(&c->link);
	c->ibcq.object.task = obj->object.task;
	c->ibcq.object.file = file;
	c->ibcq.object.device = obj->object.device;
	c->buf = u->addr + ring;
	c->db = v->addr + db;
	c->log = log;
	c->cqe_size = 64 << size;
	c->collapsed = mlx5_get(in, CQC + 0x0b, 1);
	c->ignore_overrun = mlx5_get(in, CQC + 0x0e, 1);
	c->devx = true;
	c->cqn = mlx5_ib_number();
	use(q, &u->object);
	use(q, &v->object);
	if ((err = mlx5_hw_cq_start(c)))
		return err;
	mlx5_set(out, 0x48, 24, c->cqn);
	return 0;
}

/* --- Queue pairs ------------------------------------------------------------------------------------------------ */

static struct uv_pd *find_pd(const struct uv_file *file, uint32_t pdn)
{
	for (struct uv_object *o = file->objects; o; o = o->next)
		if (o->type == UVERBS_OBJECT_PD && o->committed && ((struct mlx5_ib_pd *)o)->pdn == pdn)
			return (struct uv_pd *)o;
	return NULL;
}

/* Finds a completion queue of the file, of the verbs or of DevX. */
static struct mlx5_ib_cq *find_cq(const struct uv_file *file, uint32_t cqn, struct uv_object **object)
{
	for (struct uv_object *o = file->objects; o; o = o->next) {
		struct mlx5_devx_obj *d = (struct mlx5_devx_obj *)o;
		struct mlx5_ib_cq *c = NULL;
		if (!o->committed)
			continue;
		if (o->type == UVERBS_OBJECT_CQ)
			c = (struct mlx5_ib_cq *)o;
		else if (o->type == MLX5_IB_OBJECT_DEVX_OBJ && d->queue)
			c = d->queue->cq;
		if (!c || c->cqn != cqn)
			continue;
		*object = o;
		return c;
	}
	return NULL;
}

static int create_qp(struct uv_call *call, struct mlx5_devx_obj *obj, uint8_t *in, size_t inlen, uint8_t *out, size_t outlen)
{
	struct uv_file *file = obj->object.file;
	struct uv_object *sends, *receives;
	int err = uv_gate(call->device, "CREATE_QP");
	if (err)
		return err;
	if (inlen >= CREATE_BYTES) {
		mlx5_set(in, 0x860, 1, 1);
		mlx5_set(in, QPC + 0x683, 1, 1);
	}
	if ((err = form(in, inlen, CREATE_BYTES, qp_fields, COUNT(qp_fields), out, outlen, MLX5_COMMAND_OUT)))
		return err;
	if (mlx5_get(in, QPC + 0x08, 8) != ST_RC) /* no other service is served */
		return refuse(out, outlen, MLX5_STATUS_BAD_PARAM, QPC + 0x08);
	uint32_t rq_type = mlx5_get(in, QPC + 0x565, 3);
	if (rq_type != REGULAR_RQ && rq_type != ZERO_RQ)
		return refuse(out, outlen, MLX5_STATUS_BAD_PARAM, QPC + 0x565);
	unsigned log_rq = mlx5_get(in, QPC + 0x49, 4), stride = 16 << mlx5_get(in, QPC + 0x4d, 3), log_sq = mlx5_get(in, QPC + 0x51, 4);
	if (log_rq > MAX_LOG_WQ || log_sq > MAX_LOG_WQ || stride > 1024)
		return refuse(out, outlen, MLX5_STATUS_BAD_PARAM, QPC + 0x49);
	struct uv_pd *pd = find_pd(file, mlx5_get(in, QPC + 0x28, 24));
	if (!pd)
		return refuse(out, outlen, STATUS_BAD_RES, QPC + 0x28);
	if (!mlx5_ib_has_uar(file, mlx5_get(in, QPC + 0x68, 24)))
		return refuse(out, outlen, STATUS_BAD_RES, QPC + 0x68);
	struct mlx5_ib_cq *send_cq = find_cq(file, mlx5_get(in, QPC + 0x3e8, 24), &sends);
	if (!send_cq)
		return refuse(out, outlen, STATUS_BAD_RES, QPC + 0x3e8);
	struct mlx5_ib_cq *recv_cq = find_cq(file, mlx5_get(in, QPC + 0x4e8, 24), &receives);
	if (!recv_cq)
		return refuse(out, outlen, STATUS_BAD_RES, QPC + 0x4e8);
	uint64_t ring = get64(in, 0x800), db = get64(in, QPC + 0x500);
	uint64_t rq_bytes = rq_type == ZERO_RQ ? 0 : (uint64_t)stride << log_rq;
	uint64_t sq_bytes = mlx5_get(in, QPC + 0x50, 1) ? 0 : (uint64_t)BLOCK << log_sq;
	struct mlx5_umem *u = memory(file, mlx5_get(in, 0x840, 32), ring, rq_bytes + sq_bytes);
	if (!u)
		return refuse(out, outlen, STATUS_BAD_RES, 0x840);
	struct mlx5_umem *v = memory(file, mlx5_get(in, QPC + 0x720, 32), db, 8);
	if (!v || (v->addr + db) & 7)
		return refuse(out, outlen, STATUS_BAD_RES, QPC + 0x720);

	struct mlx5_devx_queue *q = obj->queue = calloc(1, sizeof(*q));
	if (!q || !(q->qp = calloc(1, sizeof(*q->qp))))
		return ENOMEM;
	struct mlx5_ib_qp *p = q->qp;
	rdma_link_init(&p->card.wire);
	p->ibqp.object.task = obj->object.task;
	p->ibqp.object.file = file;
	p->ibqp.object.device = obj->object.device;
	p->devx = true;
	p->rq = u->addr + ring;
	p->rq_count = rq_bytes ? 1U << log_rq : 0;
	p->rq_shift = 4 + mlx5_get(in, QPC + 0x4d, 3);
	p->sq = p->rq + rq_bytes;
	p->sq_count = sq_bytes ? 1U << log_sq : 0;
	p->db = v->addr + db;
	p->card.ops = &mlx5_hw_ops;
	p->card.run = mlx5_hw_run;
	p->card.wake = RDMA_NEVER;
	p->card.pd = pd;
	p->card.send_cq = send_cq;
	p->card.recv_cq = recv_cq;
	p->card.type = IBV_QPT_RC;
	p->card.uidx = mlx5_get(in, QPC + 0x88, 24);
	p->card.number = mlx5_ib_number();
	uv_gid(obj->object.device, p->card.gid.raw);
	use(q, &u->object);
	use(q, &v->object);
	use(q, &pd->object);
	use(q, sends);
	use(q, receives);
	if ((err = mlx5_hw_qp_start(p)))
		return err;
	uv_card_wake(obj->object.device);
	mlx5_set(out, 0x48, 24, p->card.number);
	return 0;
}

static int change(struct mlx5_ib_qp *p, uint32_t from, const struct ibv_qp_attr *a, int mask, uint8_t *out, size_t outlen)
{
	if (from != ANY_STATE && p->card.state != from)
		return mlx5_answer(out, outlen, STATUS_BAD_QP_STATE, 0);
	int err = rdma_modify(&p->card, a, mask | IBV_QP_STATE);
	if (!err && a->qp_state == IBV_QPS_RESET)
		mlx5_hw_qp_reset(p);
	mlx5_hw_cq_flush();
	return err ? mlx5_answer(out, outlen, MLX5_STATUS_BAD_PARAM, 0) : 0;
}

static int to_init(struct mlx5_ib_qp *p, const uint8_t *in, uint8_t *out, size_t outlen)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT,
		.port_num = mlx5_get(in, PATH + 0x128, 8),
		.pkey_index = mlx5_get(in, PATH + 0x10, 16),
		.qp_access_flags = (mlx5_get(in, QPC + 0x490, 1) ? IBV_ACCESS_REMOTE_READ : 0) |
				   (mlx5_get(in, QPC + 0x491, 1) ? IBV_ACCESS_REMOTE_WRITE : 0),
	};
	return change(p, IBV_QPS_RESET, &a, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, out, outlen);
}

/* The kernel resolves no address for a DevX queue pair, so a path of Ethernet must have the peer's. The card has the
 * address of a link-local GID, as create_ah does. */
static bool has_address(const uint8_t *in)
{
	const uint8_t *g = in + (PATH + 0x80) / 8, *mac = in + (PATH + 0x130) / 8;
	const uint8_t want[6] = {g[8] ^ 2, g[9], g[10], g[13], g[14], g[15]};
	return !memcmp(mac, want, sizeof(want));
}

static int to_rtr(struct mlx5_ib_qp *p, const uint8_t *in, uint8_t *out, size_t outlen)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = mlx5_get(in, QPC + 0x40, 3),
		.dest_qp_num = mlx5_get(in, QPC + 0xa8, 24),
		.rq_psn = mlx5_get(in, QPC + 0x4a8, 24),
		.max_dest_rd_atomic = 1 << mlx5_get(in, QPC + 0x488, 3),
		.min_rnr_timer = mlx5_get(in, QPC + 0x4a3, 5),
		.ah_attr = {
			.is_global = 1,
			.port_num = mlx5_get(in, PATH + 0x128, 8),
			.sl = mlx5_get(in, PATH + 0x121, 3),
			.grh = {
				.sgid_index = mlx5_get(in, PATH + 0x48, 8),
				.hop_limit = mlx5_get(in, PATH + 0x58, 8),
				.traffic_class = mlx5_get(in, PATH + 0x64, 8),
				.flow_label = mlx5_get(in, PATH + 0x6c, 20),
			},
		},
	};
	memcpy(a.ah_attr.grh.dgid.raw, in + (PATH + 0x80) / 8, sizeof(a.ah_attr.grh.dgid.raw));
	if (!has_address(in))
		return refuse(out, outlen, MLX5_STATUS_BAD_PARAM, PATH + 0x130);
	return change(p, IBV_QPS_INIT, &a,
		      IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER, out,
		      outlen);
}

static int to_rts(struct mlx5_ib_qp *p, const uint8_t *in, uint8_t *out, size_t outlen)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = mlx5_get(in, QPC + 0x3c8, 24),
		.timeout = mlx5_get(in, PATH + 0x40, 5),
		.retry_cnt = mlx5_get(in, QPC + 0x38d, 3),
		.rnr_retry = mlx5_get(in, QPC + 0x390, 3),
		.max_rd_atomic = 1 << mlx5_get(in, QPC + 0x388, 3),
	};
	return change(p, IBV_QPS_RTR, &a, IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
		      out, outlen);
}

static const struct {
	uint16_t opcode;
	const char *name;
	const struct mlx5_field *fields;
	unsigned n;
	size_t bytes;
	int (*run)(struct mlx5_ib_qp *p, const uint8_t *in, uint8_t *out, size_t outlen);
} transitions[] = {
	{RST2INIT_QP, "RST2INIT_QP", init_fields, COUNT(init_fields), MODIFY_BYTES, to_init},
	{INIT2RTR_QP, "INIT2RTR_QP", rtr_fields, COUNT(rtr_fields), MODIFY_BYTES, to_rtr},
	{RTR2RTS_QP, "RTR2RTS_QP", rts_fields, COUNT(rts_fields), MODIFY_BYTES, to_rts},
	{TOERR_QP, "2ERR_QP", state_fields, COUNT(state_fields), 16, NULL},
	{TORST_QP, "2RST_QP", state_fields, COUNT(state_fields), 16, NULL},
};

static int modify(struct uv_device *device, struct mlx5_devx_obj *obj, const uint8_t *in, size_t inlen, uint8_t *out, size_t outlen)
{
	uint16_t opcode = mlx5_get(in, 0x00, 16);
	struct mlx5_ib_qp *p = obj->queue ? obj->queue->qp : NULL;
	if (!p || mlx5_get(in, 0x48, 24) != p->card.number) /* devx_is_valid_obj_id */
		return EINVAL;
	for (size_t i = 0; i < COUNT(transitions); i++) {
		if (transitions[i].opcode != opcode)
			continue;
		int err = uv_gate(device, transitions[i].name);
		if (!err)
			err = form(in, inlen, transitions[i].bytes, transitions[i].fields, transitions[i].n, out, outlen, MLX5_COMMAND_OUT);
		if (err)
			return err;
		if (transitions[i].run)
			return transitions[i].run(p, in, out, outlen);
		struct ibv_qp_attr a = {.qp_state = opcode == TOERR_QP ? IBV_QPS_ERR : IBV_QPS_RESET};
		return change(p, ANY_STATE, &a, 0, out, outlen);
	}
	return EINVAL;
}

static int modify_obj(struct uv_call *call)
{
	struct mlx5_devx_obj *obj = (struct mlx5_devx_obj *)uv_attr_object(call, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE);
	size_t inlen = uv_attr_get(call, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN)->len;
	size_t outlen = uv_attr_get(call, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT)->len;
	int err = mlx5_ib_has_devx(call);
	if (err)
		return err;
	uint8_t *in = calloc(1, inlen + outlen);
	if (!in)
		return ENOMEM;
	err = uv_copy_from(call, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, in, inlen);
	if (!err)
		err = modify(call->device, obj, in, inlen, in + inlen, outlen);
	/* The caller gets the output of a command that firmware refused, too. */
	int late = err && err != EREMOTEIO ? 0 : uv_copy_to(call, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, in + inlen, outlen);
	free(in);
	return late ? late : err;
}

/* --- The objects ------------------------------------------------------------------------------------------------ */

static bool creates(uint16_t opcode)
{
	return opcode == CREATE_CQ || opcode == CREATE_QP;
}

static int create(struct uv_call *call, struct mlx5_devx_obj *obj, uint8_t *in, size_t inlen, uint8_t *out, size_t outlen)
{
	return (mlx5_get(in, 0x00, 16) == CREATE_CQ ? create_cq : create_qp)(call, obj, in, inlen, out, outlen);
}

static int destroy(struct mlx5_devx_obj *obj)
{
	struct mlx5_devx_queue *q = obj->queue;
	mlx5_hw_cq_flush(); /* an entry of a block names the queue pair */
	if (q->qp)
		mlx5_hw_qp_stop(q->qp);
	if (q->cq)
		mlx5_hw_cq_stop(q->cq);
	for (unsigned i = 0; i < q->uses; i++)
		q->used[i]->uses--;
	free(q->qp);
	free(q->cq);
	free(q);
	obj->queue = NULL;
	return 0;
}

static int query(struct mlx5_devx_obj *obj, const uint8_t *in, size_t inlen, uint8_t *out, size_t outlen)
{
	static const uint8_t states[] = {[IBV_QPS_RESET] = 0, [IBV_QPS_INIT] = 1, [IBV_QPS_RTR] = 2, [IBV_QPS_RTS] = 3,
					 [IBV_QPS_SQD] = 5, [IBV_QPS_SQE] = 4, [IBV_QPS_ERR] = 6};
	struct mlx5_ib_qp *p = obj->queue->qp;
	if (!p || mlx5_get(in, 0x00, 16) != QUERY_QP || mlx5_get(in, 0x48, 24) != p->card.number)
		return EINVAL;
	int err = uv_gate(obj->object.device, "QUERY_QP");
	if (!err)
		err = form(in, inlen, 16, state_fields, COUNT(state_fields), out, outlen, QUERY_OUT_BYTES);
	if (err)
		return err;
	mlx5_set(out, QPC, 4, states[p->card.state]);
	mlx5_set(out, QPC + 0x5a0, 16, p->sq_ci);
	mlx5_set(out, QPC + 0x5b0, 16, p->sq_ci);
	return 0;
}

const struct mlx5_devx_queues mlx5_ib_devx_queues = {creates, create, destroy, query};

static const struct uv_attr_spec reg_attrs[] = {
	UV_ATTR_IDR(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE, MLX5_IB_OBJECT_DEVX_UMEM, UV_NEW, UV_MANDATORY),
	UV_ATTR_TYPE_IN(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, uint64_t, UV_MANDATORY),
	UV_ATTR_TYPE_IN(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, uint64_t, UV_MANDATORY),
	UV_ATTR_FLAGS_IN(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, UV_OPTIONAL),
	UV_ATTR_TYPE_OUT(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, uint32_t, UV_MANDATORY),
	{0}};
static const struct uv_attr_spec dereg_attrs[] = {
	UV_ATTR_IDR(MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE, MLX5_IB_OBJECT_DEVX_UMEM, UV_DESTROY, UV_MANDATORY), {0}};
static const struct uv_attr_spec eqn_attrs[] = {
	UV_ATTR_TYPE_IN(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, uint32_t, UV_MANDATORY),
	UV_ATTR_TYPE_OUT(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, uint32_t, UV_MANDATORY),
	{0}};
static const struct uv_attr_spec modify_attrs[] = {
	UV_ATTR_IDR(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, MLX5_IB_OBJECT_DEVX_OBJ, UV_WRITE, UV_MANDATORY),
	UV_ATTR_IN(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, 16, UV_SIZE_ANY, UV_MANDATORY),
	UV_ATTR_OUT(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, 16, UV_SIZE_ANY, UV_MANDATORY),
	{0}};

const struct uv_method mlx5_ib_devx_queue_methods[] = {
	{MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_EQN, "DEVX_QUERY_EQN", eqn_attrs, query_eqn},
	{MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG, "DEVX_UMEM_REG", reg_attrs, reg_umem},
	{MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG, "DEVX_UMEM_DEREG", dereg_attrs, uv_destroy_none},
	{MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY, "DEVX_OBJ_MODIFY", modify_attrs, modify_obj},
	{0}};
