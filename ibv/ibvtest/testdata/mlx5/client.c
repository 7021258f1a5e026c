/* SPDX-License-Identifier: Apache-2.0
 *
 * client.c: a program as rdma-core's users write them, compiled with the distribution's headers
 * and linked with the two software libraries by their symbol versions. It opens the first device
 * and replies to each line of standard input by one: "ok ..." or "err ERRNO ...".
 *
 *	supported                               mlx5dv_is_supported
 *	open FLAGS                              mlx5dv_open_device; later verbs use it
 *	plain                                   ibv_open_device; later verbs use it
 *	create IN OUTLEN                        mlx5dv_devx_obj_create; OBJ, the output in hex
 *	query OBJ IN OUTLEN                     the output in hex
 *	general IN OUTLEN                       the output in hex
 *	destroy OBJ
 *	matcher PRIORITY FLAGS CRITERIA MASK    MATCHER
 *	unmatch MATCHER
 *	flow OLD MATCHER VALUE ACTION...        FLOW; OLD 1: mlx5dv_create_flow, else __mlx5dv_create_flow
 *	unflow FLOW                             ACTION: counter:OBJ offset:OBJ:N miss drop tag:N type:N
 *	calls SYMBOL                            the library's own count
 *	commands OPCODE
 */
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of rdma-core 60; the headers may be older. */
struct action {
	uint32_t type;
	union {
		uint32_t tag_value;
		struct mlx5dv_devx_obj *obj;
		struct {
			struct mlx5dv_devx_obj *obj;
			uint32_t offset;
		} bulk_obj;
	};
};
extern struct ibv_flow *create_flow_60(struct mlx5dv_flow_matcher *, struct mlx5dv_flow_match_parameters *, size_t, struct action *,
				       size_t) __asm__("__mlx5dv_create_flow");
extern struct ibv_flow *create_flow_old(struct mlx5dv_flow_matcher *, struct mlx5dv_flow_match_parameters *, size_t,
					struct mlx5dv_flow_action_attr *) __asm__("mlx5dv_create_flow");

enum { MOST = 512, COUNTERS_DEVX = 6, DEFAULT_MISS = 7, COUNTERS_DEVX_WITH_OFFSET = 8 };

static struct ibv_device *device;
static struct ibv_context *context;
static struct mlx5dv_devx_obj *objects[MOST];
static struct mlx5dv_flow_matcher *matchers[MOST];
static struct ibv_flow *flows[MOST];
static unsigned nobjects, nmatchers, nflows;

static size_t unhex(const char *text, uint8_t *to, size_t size)
{
	unsigned byte;
	size_t n = 0;

	for (; n < size && sscanf(text + 2 * n, "%2x", &byte) == 1; n++)
		to[n] = byte;
	return n;
}

static void hex(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		printf("%02x", p[i]);
	printf("\n");
}

static void done(int err)
{
	if (err)
		printf("err %d\n", err);
	else
		printf("ok\n");
}

static void command(const char *word, char *args)
{
	static char text[1 << 12];
	static uint8_t in[1 << 11], out[1 << 18];
	unsigned obj = 0, outlen, err = 0;
	size_t inlen;
	struct mlx5dv_devx_obj *made;

	if (!strcmp(word, "query"))
		obj = strtoul(args, &args, 10);
	sscanf(args, " %4095s %u", text, &outlen);
	inlen = unhex(text, in, sizeof in);
	memset(out, 0xee, sizeof out);
	errno = 0;
	if (!strcmp(word, "query")) {
		err = mlx5dv_devx_obj_query(objects[obj], in, inlen, out, outlen);
	} else if (!strcmp(word, "general")) {
		err = mlx5dv_devx_general_cmd(context, in, inlen, out, outlen);
	} else {
		made = mlx5dv_devx_obj_create(context, in, inlen, out, outlen);
		err = made ? 0 : errno;
		if (made)
			objects[nobjects] = made;
	}
	if (err)
		printf("err %u ", err);
	else if (!strcmp(word, "create"))
		printf("ok %u ", nobjects++);
	else
		printf("ok ");
	hex(out, outlen);
}

static struct mlx5dv_flow_match_parameters *parameters(const char *text)
{
	static union {
		struct mlx5dv_flow_match_parameters p;
		uint8_t room[1024];
	} u;

	u.p.match_sz = unhex(text, (uint8_t *)u.p.match_buf, 512);
	return &u.p;
}

static void matcher(const char *args)
{
	static char mask[1 << 12];
	unsigned priority, flags, criteria;
	struct mlx5dv_flow_matcher_attr attr = { .type = IBV_FLOW_ATTR_NORMAL };

	sscanf(args, "%u %u %u %4095s", &priority, &flags, &criteria, mask);
	attr.priority = priority;
	attr.flags = flags;
	attr.match_criteria_enable = criteria;
	attr.match_mask = parameters(mask);
	matchers[nmatchers] = mlx5dv_create_flow_matcher(context, &attr);
	if (matchers[nmatchers])
		printf("ok %u\n", nmatchers++);
	else
		printf("err %d\n", errno);
}

static struct action action_of(const char *text)
{
	struct action a = { .type = 99 };
	unsigned obj, n;

	if (sscanf(text, "counter:%u", &obj) == 1) {
		a.type = COUNTERS_DEVX;
		a.obj = objects[obj];
	} else if (sscanf(text, "offset:%u:%u", &obj, &n) == 2) {
		a.type = COUNTERS_DEVX_WITH_OFFSET;
		a.bulk_obj.obj = objects[obj];
		a.bulk_obj.offset = n;
	} else if (!strcmp(text, "miss")) {
		a.type = DEFAULT_MISS;
	} else if (!strcmp(text, "drop")) {
		a.type = MLX5DV_FLOW_ACTION_DROP;
	} else if (sscanf(text, "tag:%u", &n) == 1) {
		a.type = MLX5DV_FLOW_ACTION_TAG;
		a.tag_value = n;
	} else if (sscanf(text, "type:%u", &n) == 1) {
		a.type = n;
	}
	return a;
}

static void flow(char *args)
{
	struct action actions[8];
	struct mlx5dv_flow_action_attr old_actions[8];
	struct mlx5dv_flow_match_parameters *value;
	unsigned old = strtoul(args, &args, 10), m = strtoul(args, &args, 10);
	size_t n = 0;
	char *word;

	value = parameters(strtok(args, " "));
	while ((word = strtok(NULL, " ")))
		actions[n++] = action_of(word);
	for (size_t i = 0; i < n; i++) {
		old_actions[i].type = actions[i].type;
		old_actions[i].obj = actions[i].obj;
	}
	errno = 0;
	flows[nflows] = old ? create_flow_old(matchers[m], value, n, old_actions)
			    : create_flow_60(matchers[m], value, n, actions, sizeof *actions);
	if (flows[nflows])
		printf("ok %u\n", nflows++);
	else
		printf("err %d\n", errno);
}

static void open_device(int devx, unsigned flags)
{
	struct mlx5dv_context_attr attr = { .flags = flags };

	errno = 0;
	context = devx ? mlx5dv_open_device(device, &attr) : ibv_open_device(device);
	done(context ? 0 : errno);
}

int main(void)
{
	static char line[1 << 14];
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!list || !n) {
		fprintf(stderr, "no device\n");
		return 1;
	}
	device = list[0];
	while (fgets(line, sizeof line, stdin)) {
		char *args = strchr(line, ' ');

		line[strcspn(line, "\n")] = 0;
		if (args)
			*args++ = 0;
		else
			args = "";
		if (!strcmp(line, "supported"))
			done(mlx5dv_is_supported(device) ? 0 : EOPNOTSUPP);
		else if (!strcmp(line, "open"))
			open_device(1, strtoul(args, NULL, 10));
		else if (!strcmp(line, "plain"))
			open_device(0, 0);
		else if (!strcmp(line, "create") || !strcmp(line, "query") || !strcmp(line, "general"))
			command(line, args);
		else if (!strcmp(line, "destroy"))
			done(mlx5dv_devx_obj_destroy(objects[atoi(args)]));
		else if (!strcmp(line, "matcher"))
			matcher(args);
		else if (!strcmp(line, "unmatch"))
			done(mlx5dv_destroy_flow_matcher(matchers[atoi(args)]));
		else if (!strcmp(line, "flow"))
			flow(args);
		else if (!strcmp(line, "unflow"))
			done(ibv_destroy_flow(flows[atoi(args)]));
		else
			done(ENOSYS);
	}
	if (context)
		ibv_close_device(context);
	ibv_free_device_list(list);
	return 0;
}
