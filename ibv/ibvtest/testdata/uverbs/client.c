/* SPDX-License-Identifier: Apache-2.0
 *
 * client.c: makes calls of RDMA_VERBS_IOCTL as lines of its input say, and prints their results.
 *
 *     open N                             prints the descriptor or -errno
 *     close [FD]                         closes the device, or FD
 *     descriptors                        prints the number of open descriptors
 *     cmd NUMBER                         an ioctl of another number
 *     fork                               a child prints its number and goes on with the lines; at its end the parent prints
 *                                        "back" and goes on
 *     exit
 *     memory                             prints the address of 64 KiB for queues and doorbells
 *     poke OFFSET BYTES                  writes bytes, in hex, there
 *     pending FD                         prints the number of bytes that can be read
 *     event FD [8]                       reads a record of an asynchronous descriptor: its element and type, or none; with 8
 *                                        a record of a channel: its element, or none
 *     call OBJECT METHOD DRIVER HEADER ATTRIBUTE...
 *
 * HEADER is ok, or the name of a defect: length, reserved, fault. An ATTRIBUTE is ID,FLAGS,RESERVED,LEN,KIND,DATA with
 * the KIND v (DATA is the value), p (DATA are the bytes, in hex, that the address is of), o (an address for output), e (an
 * empty address). The result is the errno, then for each attribute ID,FLAGS,VALUE,OUTPUT. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct attr {
	uint16_t id, len, flags, reserved;
	uint64_t data;
};

static struct {
	uint16_t length, object, method, n;
	uint64_t reserved1;
	uint32_t driver, reserved2;
	struct attr attr[256];
} call;

static unsigned char memory[64][65536];
static unsigned char queues[65536] __attribute__((aligned(4096)));
static char kind[256];

static void bytes(const char *hex, unsigned char *to)
{
	unsigned b;
	for (; sscanf(hex, "%2x", &b) == 1; hex += 2)
		*to++ = b;
}

static int fd = -1;

static void event(int from, size_t size)
{
	struct {
		uint64_t element;
		uint32_t type, reserved;
	} e;
	struct pollfd p = {.fd = from, .events = POLLIN};
	ssize_t n = poll(&p, 1, 0) == 1 ? read(from, &e, size) : 0;
	if (n == sizeof(e))
		printf("%llu %u\n", (unsigned long long)e.element, e.type);
	else if (n == sizeof(e.element))
		printf("%llu\n", (unsigned long long)e.element);
	else
		printf("none\n");
}

static void run(char *rest)
{
	char header[16], *word;
	unsigned object, method, driver;
	int used, n = 0;
	memset(&call, 0, sizeof(call));
	sscanf(rest, "%u %u %u %15s%n", &object, &method, &driver, header, &used);
	for (word = strtok(rest + used, " \n"); word; word = strtok(NULL, " \n"), n++) {
		unsigned id, flags, reserved, len;
		int at = 0;
		sscanf(word, "%u,%u,%u,%u,%c,%n", &id, &flags, &reserved, &len, &kind[n], &at);
		call.attr[n] = (struct attr){id, len, flags, reserved, 0};
		memset(memory[n % 64], kind[n] == 'o' ? 0xee : 0, sizeof(memory[0]));
		switch (kind[n]) {
		case 'v': call.attr[n].data = strtoull(word + at, NULL, 0); break;
		case 'e': call.attr[n].data = 16; break;
		case 'p': bytes(word + at, memory[n % 64]); /* fall through */
		default: call.attr[n].data = (uintptr_t)memory[n % 64];
		}
	}
	call.object = object;
	call.method = method;
	call.driver = driver;
	call.n = n;
	call.length = 24 + n * sizeof(struct attr);
	call.length += !strcmp(header, "length");
	call.reserved2 = !strcmp(header, "reserved");
	int err = ioctl(fd, 0xc0181b01ul, !strcmp(header, "fault") ? (void *)16 : &call) ? errno : 0;
	printf("%d", err);
	for (int i = 0; i < n; i++) {
		printf(" %u,%u,%llu,", call.attr[i].id, call.attr[i].flags, (unsigned long long)call.attr[i].data);
		for (unsigned j = 0; kind[i] == 'o' && j < call.attr[i].len && j < 512; j++)
			printf("%02x", memory[i % 64][j]);
	}
	printf("\n");
}

int main(void)
{
	static char line[1 << 20];
	setvbuf(stdout, NULL, _IOLBF, 0);
	while (fgets(line, sizeof(line), stdin)) {
		unsigned long n, size = 16;
		char path[64];
		if (sscanf(line, "open %lu", &n) == 1) {
			snprintf(path, sizeof(path), "/dev/infiniband/uverbs%lu", n);
			fd = open(path, O_RDWR | O_CLOEXEC);
			printf("%d\n", fd < 0 ? -errno : fd);
		} else if (!strncmp(line, "close", 5)) {
			printf("%d\n", close(sscanf(line, "close %lu", &n) == 1 ? (int)n : fd) ? errno : 0);
		} else if (!strncmp(line, "descriptors", 11)) {
			for (n = 0, size = 0; n < 1024; n++)
				size += fcntl(n, F_GETFD) >= 0;
			printf("%lu\n", size);
		} else if (sscanf(line, "cmd %lu", &n) == 1) {
			printf("%d\n", ioctl(fd, n, &call) ? errno : 0);
		} else if (sscanf(line, "event %lu %lu", &n, &size) >= 1) {
			event(n, size);
		} else if (!strncmp(line, "poke ", 5)) {
			char *hex;
			n = strtoul(line + 5, &hex, 10);
			bytes(hex + 1, queues + n);
			printf("0\n");
		} else if (sscanf(line, "pending %lu", &n) == 1) {
			int pending = -1;
			ioctl(n, FIONREAD, &pending);
			printf("%d\n", pending);
		} else if (!strncmp(line, "exit", 4)) {
			return 0;
		} else if (!strncmp(line, "fork", 4)) {
			pid_t pid = fork();
			if (pid)
				waitpid(pid, NULL, 0);
			printf(pid ? "back\n" : "%d\n", getpid());
		} else if (!strncmp(line, "memory", 6)) {
			printf("%llu\n", (unsigned long long)(uintptr_t)queues);
		} else if (!strncmp(line, "call ", 5)) {
			run(line + 5);
		}
	}
	return 0;
}
