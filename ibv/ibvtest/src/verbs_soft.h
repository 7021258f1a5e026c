/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_soft.h: the shared declarations of the software libibverbs.so.1.
 *
 * A device is a netdev. A context is one opening of a device and owns every object made in it.
 *
 * Locks, outermost first: the table of devices (verbs_table_lock), the counters' (verbs_counters.h), the kernel's
 * (uv_lock), which holds all contexts and objects, then the leaves: the NIC's, the call statistics'. No verb sleeps with
 * one held. */
#ifndef FLOWTALLY_IBVTEST_VERBS_SOFT_H
#define FLOWTALLY_IBVTEST_VERBS_SOFT_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "rdma_link.h"
#include "uverbs/uverbs.h"
#include "verbs_abi.h"

#define VERBS_DRIVER "ibvtest"
#define VERBS_PUBLIC __attribute__((visibility("default")))

struct soft_device {
	struct ibv_device device; /* first: the application has a pointer to it */
	char netdev[IFNAMSIZ];
	unsigned ifindex;
	uint64_t netns; /* inode of the network namespace */

	/* Of the table, under verbs_table_lock. */
	struct soft_device *next;
	unsigned refs; /* lists and contexts; at 0 the descriptors below are closed */
	bool listed;   /* FLOWTALLY_IBVTEST_DEVICES names it now */
	bool removed;  /* lost, and not in the list until "return" */
	int netns_fd;  /* the namespace, for threads that are in another one */
	int socket;    /* of that namespace, for ioctl */

	/* Under the kernel's lock. */
	struct uv_device kernel; /* its nic is open from the first flow to the last context's close */
	uint64_t drops;          /* of the nic, those that the statistics have */
};

struct soft_context {
	struct verbs_context verbs;
	struct soft_device *device;
	struct uv_file *file;      /* the opening of device->kernel */
	struct rdma_link children; /* struct soft_object, oldest first */
};

/* It precedes every object of a context in memory. */
struct soft_object {
	struct rdma_link link;
	void (*release)(void *object);
};

struct soft_counters;

/* A flow by verbs or by a matcher. */
struct soft_flow {
	struct ibv_flow flow;
	struct soft_counters *counters; /* NULL: none */
};

/* verbs_environ.c: FLOWTALLY_IBVTEST_*, read by verbs_environ_load at each
 * ibv_get_device_list. The strings live until the next load. */
struct verbs_environ {
	char *devices, *fail, *delay, *without, *control, *statistics, *comp_cntr_max, *comp_cntr_ops;
};
extern const char *const verbs_capabilities[]; /* the names that WITHOUT may contain, NULL at the end */
void verbs_environ_load(struct verbs_environ *environ);
void verbs_environ_free(struct verbs_environ *environ);
int verbs_errno(const char *name, size_t n); /* "EIO" or "5"; -1 when unknown */
#define VERBS_ABORT 4095			     /* "ABORT": the call ends the process */
#define VERBS_EXIT 4094			     /* "EXIT": the call ends the process with status 0 */
/* An item of a comma-separated list, "[device/]name[=value]": copied, and *list advanced. */
struct verbs_item {
	char device[64], name[64], value[64];
};
bool verbs_next_item(const char **list, struct verbs_item *item);

/* verbs_calls.c: statistics, faults and delays. */
void verbs_calls_configure(const char *statistics, const char *fail, const char *delay, const char *without);
void verbs_end(int how); /* VERBS_ABORT or VERBS_EXIT */
int verbs_call(const char *device, const char *verb); /* counts and delays; 0 or the errno to return */
uint64_t verbs_delay(const char *device, const char *name); /* ns from DELAY for a name that is not a call */
void verbs_count(const char *name, uint64_t n); /* adds to a statistic that is not a call */
bool verbs_without(const char *device, const char *capability);
void verbs_calls_close(void);

/* verbs_limits.c: of completion counters. */
void verbs_comp_cntr_configure(const char *max, const char *ops);
void verbs_comp_cntr_limits(const char *device, uint64_t *max, uint32_t *ops);

/* verbs_control.c: the thread that reads the FIFO, and calls obey for each line. */
void verbs_control_configure(const char *path, void (*obey)(const char *word, const char *device));
void verbs_control_close(void);

/* verbs_sysfs.c: the directory that stands for /sys/class/infiniband. */
const char *verbs_sysfs_root(void); /* NULL and errno when it cannot be made */
int verbs_sysfs_add(struct soft_device *device, unsigned number);
int verbs_sysfs_ndev(struct soft_device *device); /* whose GIDs the port has: the bond of a slave, as roce_gid_mgmt.c of the kernel */
void verbs_sysfs_remove(struct soft_device *device);
void verbs_sysfs_close(void);

/* verbs_device.c: the table. */
void verbs_table_lock(void);
void verbs_table_unlock(void);
struct soft_device *verbs_table(void); /* the first device; locked */
/* Removes the devices that the list does not name any more: those without references at once, the others with their
 * last reference. Locked. */
void verbs_table_forget(void);
/* At the library's end. Takes the lock. */
void verbs_table_clear(void);
/* The device for a netdev of the calling thread's namespace, with one more reference; NULL if there is no
 * such netdev, or no memory. Locked. */
struct soft_device *verbs_device_find(const char *name, const char *netdev);
void verbs_device_unref(struct soft_device *device);
bool verbs_device_linked(struct soft_device *device); /* is the netdev there and running? */

/* verbs_context.c. Every verb starts with verbs_gate, or with verbs_begin: after its 0 the caller holds uv_lock. */
static inline struct soft_context *verbs_context_of(struct ibv_context *context)
{
	return RDMA_OUTER(context, struct soft_context, verbs.context);
}
struct ibv_context *verbs_open(struct ibv_device *device);
int verbs_gate(struct ibv_context *context, const char *verb);
int verbs_begin(struct ibv_context *context, const char *verb);
void verbs_release(struct soft_object *object); /* takes it out of its context and frees it; locked */
void verbs_drop(void *object);                  /* the same, without the lock */
void *verbs_made(void *object, int err);        /* the result of creation */

/* verbs_events.c: the number of an object's events that are acknowledged, and its lock. */
struct verbs_acked {
	pthread_mutex_t *mutex;
	pthread_cond_t *cond;
	uint32_t *completed;
};
#define VERBS_ACKED(o, member) ((struct verbs_acked){&(o)->mutex, &(o)->cond, &(o)->member})
void verbs_events_wait(struct verbs_acked acked, uint32_t reported); /* until so many are */

/* The inline verbs, by their slots in struct verbs_context. */
int verbs_query_port(struct ibv_context *, uint8_t port, struct ibv_port_attr *, size_t size);
int verbs_query_device_ex(struct ibv_context *, const struct ibv_query_device_ex_input *, struct ibv_device_attr_ex *,
			  size_t size);
int verbs_poll_cq(struct ibv_cq *, int n, struct ibv_wc *);
int verbs_post_send(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **bad);
int verbs_post_recv(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **bad);
struct ibv_counters *verbs_create_counters(struct ibv_context *, struct ibv_counters_init_attr *);
int verbs_destroy_counters(struct ibv_counters *);
int verbs_attach_counters_point_flow(struct ibv_counters *, struct ibv_counter_attach_attr *, struct ibv_flow *);
int verbs_read_counters(struct ibv_counters *, uint64_t *values, uint32_t n, uint32_t flags);
struct ibv_flow *verbs_create_flow(struct ibv_qp *, struct ibv_flow_attr *);
int verbs_destroy_flow(struct ibv_flow *);

#endif
