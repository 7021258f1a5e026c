/* SPDX-License-Identifier: Apache-2.0
 *
 * uverbs.h: a uverbs kernel in software. It serves the calls that libibverbs, libmlx5 and libefa make to the kernel's
 * character device /dev/infiniband/uverbsN. The shapes and the names follow drivers/infiniband/core and the drivers
 * mlx5_ib and efa: the kernel's source explains each of them.
 *
 * A front end (uverbs_preload.c) brings the calls of a process: uv_open, uv_ioctl, uv_close. The dispatcher
 * (uverbs_ioctl.c) finds the method, checks each attribute against the method's specs, looks the handles up, and runs
 * the method. A method of the core (uverbs_std_*.c, uverbs_cmd.c) checks its arguments and calls an operation
 * of the driver (struct uv_device_ops). A driver adds methods and attributes of its own by struct uv_driver.
 *
 * One lock, uv_lock, is held while a method, an operation, a destroy function or the card runs.
 * Functions return 0 or a positive errno. A handle is looked up in one open file only. */
#ifndef UVERBS_H
#define UVERBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "uverbs_abi.h"

struct nic;
struct nic_queue;
struct uv_call;
struct uv_device;
struct uv_file;
struct uv_object;

/* --- Attributes and methods ------------------------------------------------------------------------------------- */

enum uv_attr_type { UV_END, UV_PTR_IN, UV_PTR_OUT, UV_ENUM_IN, UV_IDR, UV_FD, UV_IDRS };
enum uv_access { UV_READ, UV_WRITE, UV_NEW, UV_DESTROY };

/* uv_attr_spec is one attribute of a method. For data min and max are bytes; max is the size of the known
 * structure, and with zero_trailing a longer one is accepted when its rest is zero. For UV_IDRS they are counts. */
struct uv_attr_spec {
	uint16_t id;
	uint8_t type, access;
	bool mandatory, zero_trailing;
	uint16_t object; /* of UV_IDR, UV_FD, UV_IDRS */
	uint32_t min, max;
};

int uv_destroy_none(struct uv_call *call); /* run of a method that only destroys */

#define UV_SIZE_ANY 0xffff
#define UV_MANDATORY true
#define UV_OPTIONAL false
#define UV_ATTR_IN(i, lo, hi, m) {.id = (i), .type = UV_PTR_IN, .min = (lo), .max = (hi), .mandatory = (m)}
#define UV_ATTR_OUT(i, lo, hi, m) {.id = (i), .type = UV_PTR_OUT, .min = (lo), .max = (hi), .mandatory = (m)}
#define UV_ATTR_TYPE_IN(i, t, m) UV_ATTR_IN(i, sizeof(t), sizeof(t), m)
#define UV_ATTR_TYPE_OUT(i, t, m) UV_ATTR_OUT(i, sizeof(t), sizeof(t), m)
/* The structure may end behind its member last, and may be longer when the rest is zero. */
#define UV_ATTR_STRUCT_IN(i, t, last, m)                                                                            \
	{.id = (i), .type = UV_PTR_IN, .min = offsetof(t, last) + sizeof(((t *)0)->last), .max = sizeof(t),          \
	 .mandatory = (m), .zero_trailing = true}
#define UV_ATTR_STRUCT_OUT(i, t, last, m)                                                                           \
	{.id = (i), .type = UV_PTR_OUT, .min = offsetof(t, last) + sizeof(((t *)0)->last), .max = sizeof(t),         \
	 .mandatory = (m), .zero_trailing = true}
#define UV_ATTR_CONST_IN(i, m) UV_ATTR_IN(i, 8, 8, m)
#define UV_ATTR_FLAGS_IN(i, m) UV_ATTR_IN(i, 4, 8, m)
#define UV_ATTR_IDR(i, o, a, m) {.id = (i), .type = UV_IDR, .object = (o), .access = (a), .mandatory = (m)}
#define UV_ATTR_FD(i, o, a, m) {.id = (i), .type = UV_FD, .object = (o), .access = (a), .mandatory = (m)}
#define UV_ATTR_IDRS(i, o, a, lo, hi, m)                                                                            \
	{.id = (i), .type = UV_IDRS, .object = (o), .access = (a), .min = (lo), .max = (hi), .mandatory = (m)}
#define UV_ATTR_UHW UV_ATTR_IN(UVERBS_ATTR_UHW_IN, 0, UV_SIZE_ANY, false), UV_ATTR_OUT(UVERBS_ATTR_UHW_OUT, 0, UV_SIZE_ANY, false)

/* uv_method is one ioctl method: attrs end with {0}. A driver's entry with run == NULL adds attributes to the
 * method of the core with the same numbers. name is the name in FAIL, DELAY and in the statistics. */
struct uv_method {
	uint16_t object, method;
	const char *name;
	const struct uv_attr_spec *attrs;
	int (*run)(struct uv_call *call);
};

/* uv_write_cmd is one command of INVOKE_WRITE. The command's structures have at least req and resp bytes. */
struct uv_write_cmd {
	uint32_t cmd;
	const char *name;
	size_t req, resp;
	int (*run)(struct uv_call *call);
};

/* uv_attr is an attribute of a call, checked. */
struct uv_attr {
	const struct uv_attr_spec *spec;
	unsigned index;           /* in the caller's array */
	uint16_t len;
	uint8_t enum_id;
	uint64_t data;            /* the value when len is at most 8, else the address; the number of a descriptor */
	struct uv_object *object; /* of UV_IDR and UV_FD */
	struct uv_object **objects; /* of UV_IDRS: count, freed with the call */
	unsigned count;
};

/* uv_udata is a pair of structures of the core or the driver. */
struct uv_udata {
	uint64_t in, out; /* addresses, or the value itself when inlen is at most 8 */
	size_t inlen, outlen;
};

/* UV_DRIVER_OBJECT_SIZE is the size of an object of a driver's own type: its structure must fit. */
enum { UV_ATTRS = 40, UV_NEW_OBJECTS = 4, UV_DRIVER_OBJECT_SIZE = 1024 };

/* uv_call is one call of a method. */
struct uv_call {
	struct uv_file *file;
	struct uv_task *task; /* that makes it */
	struct uv_device *device;
	const struct uv_method *method;
	const char *name;    /* of the method or of the command */
	uint64_t user_attrs; /* address of the caller's array */
	struct uv_attr attr[UV_ATTRS];
	unsigned attrs;
	struct uv_udata core;   /* of a command of INVOKE_WRITE */
	struct uv_udata driver; /* UHW */
	struct uv_object *made[UV_NEW_OBJECTS];
	unsigned made_len;
};

/* uv_attr_get returns NULL when the call does not have the attribute. */
const struct uv_attr *uv_attr_get(const struct uv_call *call, uint16_t id);
struct uv_object *uv_attr_object(const struct uv_call *call, uint16_t id); /* NULL: not there */

/* uv_copy_from: ENOENT without the attribute, EINVAL when it is longer than size. The rest of to is unchanged. */
int uv_copy_from(struct uv_call *call, uint16_t id, void *to, size_t size);
/* uv_copy_from_or_zero reads the first size bytes and zeroes the rest of to. ENOENT without the attribute. */
int uv_copy_from_or_zero(struct uv_call *call, uint16_t id, void *to, size_t size);
/* uv_copy_to writes as many bytes as fit and sets VALID_OUTPUT. ENOENT without the attribute. */
int uv_copy_to(struct uv_call *call, uint16_t id, const void *from, size_t size);
/* uv_copy_to_opt is uv_copy_to for an optional attribute: 0 without it. */
int uv_copy_to_opt(struct uv_call *call, uint16_t id, const void *from, size_t size);
/* uv_copy_to_or_zero zeroes the bytes behind size, too. */
int uv_copy_to_or_zero(struct uv_call *call, uint16_t id, const void *from, size_t size);
/* uv_get_const: ENOENT without the attribute, EINVAL above max. */
int uv_get_const(struct uv_call *call, uint16_t id, uint64_t max, uint64_t *value);
/* uv_get_flags: 0 flags without the attribute, EINVAL for a bit outside allowed. */
int uv_get_flags(struct uv_call *call, uint16_t id, uint64_t allowed, uint64_t *flags);

/* uv_udata_in copies the first size bytes of the caller's structure, and zeroes the rest of to when it is shorter. */
int uv_udata_in(struct uv_call *call, const struct uv_udata *u, void *to, size_t size);
/* uv_udata_in_at copies size bytes from the offset at: EINVAL when the structure is shorter. */
int uv_udata_in_at(struct uv_call *call, const struct uv_udata *u, size_t at, void *to, size_t size);
/* uv_udata_out writes as many bytes as fit. */
int uv_udata_out(struct uv_call *call, const struct uv_udata *u, const void *from, size_t size);
/* uv_udata_cleared: are the bytes from at on zero? */
bool uv_udata_cleared(struct uv_call *call, const struct uv_udata *u, size_t at);

/* --- Memory of the caller --------------------------------------------------------------------------------------- */

/* uv_task is a process. A front end makes one for each process that makes calls, and never frees it. */
struct uv_task {
	pid_t pid; /* 0: the process ended */
	bool own;  /* this process, which makes its calls by a library: its addresses need no check */
};

/* EFAULT when a byte is not mapped or not allowed: nothing of the model reads the caller's memory otherwise. */
int uv_copy_from_user(const struct uv_task *task, void *to, uint64_t from, size_t n);
int uv_copy_to_user(const struct uv_task *task, uint64_t to, const void *from, size_t n);

/* uv_capable: does the process have the capability? */
bool uv_capable(const struct uv_task *task, int capability);

/* uv_mmap_insert reserves size bytes, rounded up to pages, of the file's descriptor for the caller's mmap, and maps
 * them for the model, too. They are zero. *key is the offset for mmap(2). The mapping ends with
 * uv_mmap_remove or with the file. */
int uv_mmap_insert(struct uv_file *file, size_t size, uint64_t *key, void **at);
void uv_mmap_remove(struct uv_file *file, uint64_t key);

/* --- Objects ---------------------------------------------------------------------------------------------------- */

/* uv_object is the first member of each object that has a handle or a descriptor. */
struct uv_object {
	uint16_t type; /* UVERBS_OBJECT_* or the driver's */
	uint32_t handle;
	unsigned uses; /* by other objects: destroying a used object is EBUSY */
	uint64_t user_handle;
	struct uv_file *file;
	struct uv_task *task; /* that made it: its addresses are in this process */
	struct uv_device *device;
	/* Gives the object's resources back and ends its uses of others. call is NULL when the file closes: then it cannot
	 * fail. The dispatcher frees the memory. NULL: nothing to do. */
	int (*destroy)(struct uv_object *object, struct uv_call *call);
	struct uv_object *next, **at; /* of the file, the youngest first; at points to it */
	bool committed;
};

/* uv_object_new makes an object of at least size bytes, zeroed, in the call's file. It stays when the call returns 0,
 * and is freed without destroy when the call fails. EINVAL: the file has no context. */
int uv_object_new(struct uv_call *call, uint16_t type, size_t size, struct uv_object **object);
/* uv_object_get: EINVAL for a handle of another type, ENOENT for none. */
int uv_object_get(struct uv_file *file, uint16_t type, uint64_t handle, struct uv_object **object);
/* uv_object_destroy: EBUSY when it is used; else destroys and frees it. */
int uv_object_destroy(struct uv_object *object, struct uv_call *call);

struct uv_ucontext {
	struct uv_file *file;
};

struct uv_pd {
	struct uv_object object;
};

struct uv_mr {
	struct uv_object object;
	struct uv_pd *pd;
	uint64_t start, length, iova;
	uint32_t access;
	uint32_t lkey, rkey; /* set by reg_user_mr */
};

struct uv_ah {
	struct uv_object object;
	struct uv_pd *pd;
	struct ib_uverbs_ah_attr attr;
};

/* uv_channel is a completion channel or the asynchronous descriptor: a pipe whose reading end the caller has. A descriptor
 * of a driver's type is a socket that keeps the bounds of messages. */
struct uv_channel {
	struct uv_object object;
	int write_fd;
	int read_fd; /* the caller's end before the call succeeds, then of a pipe a duplicate of it, else -1 */
	uint64_t number_at; /* where the caller learns the number of its end */
	size_t number_size;
	uint64_t inode; /* of the pipe: the caller's descriptor must be it still */
};

struct uv_cq {
	struct uv_object object;
	struct uv_channel *channel; /* NULL: none */
	uint32_t cqe;               /* the number that the caller asked for; create_cq sets the number that it has */
	uint32_t comp_vector, flags;
	uint32_t comp_events_reported, async_events_reported;
};

struct uv_comp_cntr {
	struct uv_object object;
};

struct uv_qp {
	struct uv_object object;
	struct uv_pd *pd;
	struct uv_cq *send_cq, *recv_cq;
	uint32_t type;   /* enum ib_uverbs_qp_type */
	uint32_t flags;  /* enum ib_uverbs_qp_create_flags */
	uint32_t source_qpn;
	uint32_t qp_num; /* set by create_qp */
	struct ib_uverbs_qp_cap cap; /* asked for; create_qp sets the sizes that it has */
	uint8_t state;   /* enum ib_qp_state: RESET 0, INIT, RTR, RTS, SQD, SQE, ERR; modify_qp changes it */
	uint32_t async_events_reported;
	struct nic_queue *frames; /* of RAW_PACKET: what flows deliver; NULL: nothing is delivered */
	struct {
		uint32_t ops;
		struct uv_comp_cntr *cntr;
	} comp_cntr[6];
	unsigned comp_cntrs;
};

struct uv_counters {
	struct uv_object object;
};

struct uv_flow {
	struct uv_object object;
	struct uv_qp *qp; /* NULL: of a driver's method */
};

/* --- Devices and drivers ---------------------------------------------------------------------------------------- */

/* uv_device_ops has the members of struct ib_device_ops that are served. A NULL operation is EOPNOTSUPP. The core
 * makes the checks of the kernel's core before it calls one, and counts the uses. size_* is the size of the
 * driver's structure, whose first member is the core's. */
struct uv_device_ops {
	uint32_t driver_id; /* enum rdma_driver_id */
	uint32_t num_comp_vectors;

	size_t size_ib_ucontext, size_ib_pd, size_ib_mr, size_ib_ah, size_ib_cq, size_ib_qp, size_ib_flow, size_ib_counters,
		size_ib_comp_cntr;

	/* The file's context is file->context, zeroed. */
	int (*alloc_ucontext)(struct uv_ucontext *context, struct uv_call *call);
	/* Fills attr, which is zeroed; response_length is the core's. extended: by EX_QUERY_DEVICE, with call->driver. */
	int (*query_device)(struct uv_device *device, struct ib_uverbs_ex_query_device_resp *attr, struct uv_call *call,
			    bool extended);
	int (*query_port)(struct uv_device *device, struct ib_uverbs_query_port_resp_ex *attr);

	int (*alloc_pd)(struct uv_pd *pd, struct uv_call *call);
	int (*reg_user_mr)(struct uv_mr *mr, struct uv_call *call);
	int (*dereg_mr)(struct uv_mr *mr, struct uv_call *call);
	int (*create_ah)(struct uv_ah *ah, struct uv_call *call);
	int (*destroy_ah)(struct uv_ah *ah, struct uv_call *call);

	int (*create_cq)(struct uv_cq *cq, struct uv_call *call);
	int (*destroy_cq)(struct uv_cq *cq, struct uv_call *call);
	int (*create_qp)(struct uv_qp *qp, struct uv_call *call);
	/* attr->qp_state is 0 unless mask has IB_QP_STATE. The core sets qp->state after it. */
	int (*modify_qp)(struct uv_qp *qp, const struct ib_uverbs_modify_qp *attr, uint32_t mask, struct uv_call *call);
	int (*query_qp)(struct uv_qp *qp, struct ib_uverbs_query_qp_resp *attr, uint32_t mask);
	int (*destroy_qp)(struct uv_qp *qp, struct uv_call *call);

	/* flow->qp is set. specs are attr->size bytes, each checked to lie inside. call->driver is UHW. */
	int (*create_flow)(struct uv_flow *flow, const struct ib_uverbs_flow_attr *attr, const uint8_t *specs,
			   struct uv_call *call);
	int (*destroy_flow)(struct uv_flow *flow, struct uv_call *call);
	int (*create_counters)(struct uv_counters *counters, struct uv_call *call);
	int (*destroy_counters)(struct uv_counters *counters, struct uv_call *call);
	/* Fills n values, which are zeroed. flags: IB_UVERBS_READ_COUNTERS_PREFER_CACHED. */
	int (*read_counters)(struct uv_counters *counters, uint64_t *values, unsigned n, uint64_t flags);

	int (*query_comp_cntr_caps)(struct uv_device *device, uint32_t *max_counters, uint64_t *max_value, uint32_t *ops);
	int (*create_comp_cntr)(struct uv_comp_cntr *cntr, struct uv_call *call);
	int (*destroy_comp_cntr)(struct uv_comp_cntr *cntr, struct uv_call *call);
	int (*set_comp_cntr)(struct uv_comp_cntr *cntr, enum ib_uverbs_comp_cntr_entry entry, uint64_t value);
	int (*inc_comp_cntr)(struct uv_comp_cntr *cntr, enum ib_uverbs_comp_cntr_entry entry, uint64_t amount);
	/* qp->comp_cntr has the pairs from before. The core adds the pair after it. */
	int (*qp_attach_comp_cntr)(struct uv_qp *qp, struct uv_comp_cntr *cntr, uint32_t ops);

	/* One pass of the card over its live queues: the number of work requests that it did. */
	unsigned (*card)(struct uv_device *device);
};

/* uv_driver is a kind of device. A device whose name begins with prefix is its device. */
struct uv_driver {
	const char *prefix;
	const struct uv_device_ops *ops;
	const struct uv_method *const *methods; /* tables that end with {0}; the list ends with NULL */
};

extern const struct uv_driver mlx5_ib_driver, efa_ib_driver;

struct uv_device {
	const struct uv_driver *driver;
	const struct uv_device_ops *ops;
	unsigned number; /* uverbsN */
	char name[64], netdev[16];
	uint8_t mac[6];
	unsigned generation;    /* rises when the device is lost */
	bool removed, port_down; /* removed: it cannot be opened */
	bool unlisted;          /* it was removed: sysfs does not name it */
	bool unplugged;         /* a read found that the netdev is gone */
	struct nic *nic;        /* by uv_device_nic */
	uint64_t drops;         /* of the nic, those that the statistics have */
	void *priv;             /* of the driver, for all files */
	struct uv_file *files;
	struct uv_device *next;
};

/* uv_device_nic opens the packet engine of the device's netdev, once. */
int uv_device_nic(struct uv_device *device, struct nic **nic);
struct uv_device *uv_devices(void);
/* The shim stands before libibverbs in this process (../shim). */
void uv_shimmed_set(void);
bool uv_shimmed(void);
/* uv_gid is the only GID of the device, the link-local address of its netdev. Its last 8 bytes are the GUID. */
void uv_gid(const struct uv_device *device, uint8_t gid[16]);
/* uv_without: does WITHOUT name the feature for the device? */
bool uv_without(const struct uv_device *device, const char *feature);

/* uv_file is an open descriptor of a device. */
struct uv_file {
	struct uv_device *device;
	unsigned generation;        /* of the device when it was opened */
	struct uv_ucontext *context; /* NULL before GET_CONTEXT */
	struct uv_object *objects;  /* the youngest first */
	struct uv_object **by_handle;
	uint32_t handles, free_handle; /* the length of by_handle; no smaller handle is free */
	int memory;                 /* the sparse memfd that the caller maps */
	uint64_t next_key;
	struct uv_mapping *mappings;
	struct uv_channel *async;   /* NULL before ASYNC_EVENT_ALLOC */
	/* Puts a descriptor of the model into the caller, and closes it here: its number there, or -errno. */
	int (*install_fd)(int fd);
	unsigned calls;             /* in progress */
	bool closing;               /* the last call closes it */
	struct uv_file *next;
};

/* uv_lost: the device was lost after the file was opened. Its commands return EIO, and its objects can be destroyed. */
bool uv_lost(const struct uv_file *file);

/* --- Events ----------------------------------------------------------------------------------------------------- */

/* uv_async_event reports an IB_EVENT_*: element is the user handle of an object, or the number of a port. */
void uv_async_event(struct uv_file *file, uint32_t type, uint64_t element);
void uv_cq_event(struct uv_cq *cq, uint32_t type);
void uv_qp_event(struct uv_qp *qp, uint32_t type);
/* uv_comp_event reports a completion on the channel of the CQ. */
void uv_comp_event(struct uv_cq *cq);

/* --- The card, faults ------------------------------------------------------------------------------------------- */

/* uv_card_wake starts the card's thread, or ends its sleep: a queue was made. Called under uv_lock. */
void uv_card_wake(struct uv_device *device);

/* uv_gate is called by drivers before a firmware command with its PRM name. It counts the call, waits for the time in
 * DELAY, and returns the errno of FAIL or 0. The dispatcher calls it, without the lock, before each method and command
 * with its name, and before it looks at the attributes. */
int uv_gate(struct uv_device *device, const char *name);

/* uv_mutant: is the kernel to behave in this wrong way? (FLOWTALLY_IBVTEST_MUTANT) */
bool uv_mutant(const char *name);

/* --- Front ends ------------------------------------------------------------------------------------------------- */

void uv_lock(void);
void uv_unlock(void);

/* uv_device_path: the N of /dev/infiniband/uverbsN, or -1. */
long uv_device_path(const char *path);
/* uv_device_stat makes a stat of a file's memfd, or of nothing, the stat of the character device uverbsN. */
void uv_device_stat(unsigned number, struct stat *s);
/* uv_fstat is fstat of a process's descriptor: 0, or -1 with errno. */
int uv_fstat(pid_t pid, int fd, struct stat *s);

/* uv_open opens uverbsN: the file has a descriptor, file->memory, for the caller. ENXIO without the device. */
int uv_open(unsigned number, int (*install_fd)(int), struct uv_file **file);
int uv_ioctl(struct uv_file *file, struct uv_task *task, unsigned long cmd, uint64_t arg);
/* uv_close destroys all objects of the file, the youngest first, whatever uses them, and frees it: now, or when its
 * last call returns. memory stays open. */
void uv_close(struct uv_file *file);

#endif
