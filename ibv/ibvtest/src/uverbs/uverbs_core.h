/* SPDX-License-Identifier: Apache-2.0
 *
 * uverbs_core.h: the declarations that the files of the core share. uverbs.h is the interface for drivers. */
#ifndef UVERBS_CORE_H
#define UVERBS_CORE_H

#include <pthread.h>

#include "uverbs.h"

extern pthread_mutex_t uv_mutex; /* of uv_lock */

/* The tables of the core. */
extern const struct uv_method uv_device_methods[], uv_type_methods[], uv_cq_methods[], uv_qp_methods[],
	uv_counter_methods[], uv_event_methods[];
extern const struct uv_write_cmd uv_device_cmds[], uv_qp_cmds[], uv_flow_cmds[];

const struct uv_method *uv_method_find(const struct uv_device *device, uint16_t object, uint16_t method);
/* The spec of an attribute, of the core's method or the driver's. */
const struct uv_attr_spec *uv_spec_find(const struct uv_device *device, const struct uv_method *method, uint16_t id);
const struct uv_attr_spec *uv_extra_specs(const struct uv_device *device, const struct uv_method *method);
const struct uv_write_cmd *uv_write_find(uint32_t cmd);
void uv_fill_udata(const struct uv_call *call, struct uv_udata *u, uint16_t in, uint16_t out);

/* The context that a method needs: EINVAL without, EIO when the device is lost. */
int uv_get_context(const struct uv_call *call);

/* uv_channel_open makes the channel's pipe, and checks that number_at can be written. uv_channel_give then gives the
 * reading end to the caller and writes its number there: as the kernel, at the end of a call that succeeds. */
int uv_channel_open(struct uv_channel *channel, struct uv_call *call, uint64_t number_at, size_t number_size);
int uv_channel_give(struct uv_channel *channel, struct uv_call *call);
int uv_channel_close(struct uv_object *object, struct uv_call *call);
int uv_channel_get(const struct uv_call *call, uint16_t type, int64_t fd, struct uv_object **object);

/* The destroy functions of a uv_cq and a uv_qp. */
int uv_cq_destroy(struct uv_object *object, struct uv_call *call);
int uv_qp_destroy(struct uv_object *object, struct uv_call *call);

/* uv_device_obey changes the device as a word of the control FIFO says (../verbs_control.c). false: no such word. */
bool uv_device_obey(struct uv_device *device, const char *word);

/* uv_devices_read returns the devices by the environment and the thread's network namespace, as they are now. */
struct uv_device *uv_devices_read(void);

/* uverbs_sysfs.c: sysfs shows these devices, those that were removed excepted; or it has no class of RDMA devices. */
void uv_sysfs_show(const struct uv_device *devices);
void uv_sysfs_hide(void);

/* Before an object is destroyed: drops its events that the caller has not read and takes them off the numbers of
 * reported events, as ib_uverbs_release_ucq and ib_uverbs_release_uevent do. */
void uv_cq_release_events(struct uv_cq *cq);
void uv_qp_release_events(struct uv_qp *qp);

/* uv_gate without the lock. EBADF: the file was closed meanwhile. */
int uv_gate_unlocked(struct uv_call *call, const char *name);
void uv_device_note_drops(struct uv_device *device);

void uv_object_free(struct uv_object *object);
void uv_object_no_handle(struct uv_object *object); /* gives its handle back: it has a descriptor in place of one */
void uv_objects_close(struct uv_file *file);
void uv_mappings_close(struct uv_file *file);
int uv_memory_fd(void);

/* uv_file_new opens a device, whatever its state. The file has no memory. NULL: no room. */
struct uv_file *uv_file_new(struct uv_device *device, int (*install_fd)(int));

int uv_invoke_write(struct uv_call *call);

#endif
