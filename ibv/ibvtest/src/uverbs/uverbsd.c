/* SPDX-License-Identifier: Apache-2.0
 *
 * uverbsd.c: the front end for seccomp: uverbsd COMMAND... runs the command, and serves the calls that it and all its
 * children make to the devices, by user notification. The model lives in this process: it outlives those that make calls.
 *
 * The first thread has the filter, starts the command and waits for its end. The threads that were made before serve.
 *
 * The descriptor of a caller is an open file of its own of the file's memfd. That open file ends with the last
 * descriptor and the last mapping, as the kernel's does: a write lease is then granted to this process (reap). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../verbs_soft.h"
#include "uverbs_core.h"

#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif

enum { CONTINUE = -1, SENT = -2 };

/* A process that made a call. Its entry stays when it ends, because objects name its task. */
struct process {
	struct uv_task task;
	int pidfd;
	struct process *next;
};

static struct process *processes; /* under uv_lock */
static int listener;
static sem_t filtered; /* the listener is there */
static int idle;       /* threads that wait for a call */
static volatile pid_t command;
static __thread const struct seccomp_notif *current; /* the call that this thread serves */
static __thread struct process *caller;              /* the process that makes it */

static int put(int fd, unsigned flags, unsigned fd_flags)
{
	struct seccomp_notif_addfd a = {.id = current->id, .flags = flags, .srcfd = fd, .newfd_flags = fd_flags};
	int n = ioctl(listener, SECCOMP_IOCTL_NOTIF_ADDFD, &a), err = errno;
	close(fd);
	return n < 0 ? -err : n;
}

static int install(int fd) { return put(fd, 0, O_CLOEXEC); }

/* FAIL ends the process that makes the call. */
void verbs_end(int how)
{
	if (caller->task.pid > 0) /* 0: it has ended */
		kill(caller->task.pid, how == VERBS_ABORT ? SIGABRT : SIGKILL);
}

/* Closes the files of which no process has a descriptor or a mapping, and notices the ends of processes. */
static void reap(void)
{
	for (struct uv_device *d = uv_devices(); d; d = d->next)
		for (struct uv_file *f = d->files, *next; f; f = next) {
			int memory = f->memory;
			next = f->next;
			if (f->closing || fcntl(memory, F_SETLEASE, F_WRLCK))
				continue;
			f->memory = -1; /* the number can be another file's soon, and a call in progress keeps this one */
			uv_close(f);
			close(memory);
		}
	for (struct process *p = processes; p; p = p->next)
		if (p->task.pid && poll(&(struct pollfd){.fd = p->pidfd, .events = POLLIN}, 1, 0) == 1) {
			close(p->pidfd);
			p->task.pid = 0;
		}
}

static struct process *process_of(pid_t thread)
{
	char path[64], line[128];
	pid_t pid = 0;
	snprintf(path, sizeof(path), "/proc/%d/status", thread);
	FILE *status = fopen(path, "re");
	while (status && !pid && fgets(line, sizeof(line), status))
		(void)sscanf(line, "Tgid: %d", &pid);
	if (status)
		fclose(status);
	for (struct process *p = processes; p; p = p->next)
		if (p->task.pid == pid)
			return pid ? p : NULL;
	struct process *p = calloc(1, sizeof(*p));
	if (!p || (p->pidfd = syscall(SYS_pidfd_open, pid, 0)) < 0) {
		free(p);
		return NULL;
	}
	p->task.pid = pid;
	p->next = processes;
	processes = p;
	return p;
}

/* Devices are of the network namespace of the process that opens them. */
static void enter_netns(pid_t thread)
{
	char path[64];
	struct stat own, other;
	snprintf(path, sizeof(path), "/proc/%d/ns/net", thread);
	if (stat("/proc/thread-self/ns/net", &own) || stat(path, &other) || own.st_ino == other.st_ino)
		return;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && setns(fd, CLONE_NEWNET))
		perror("uverbsd: entering the caller's network namespace");
	if (fd >= 0)
		close(fd);
}

/* The string may end before a page that is not mapped. */
static bool read_string(pid_t pid, uint64_t at, char *to, size_t size)
{
	size_t page = 4096 - at % 4096, first = page < size ? page : size - 1;
	struct iovec l = {to, size - 1}, r[] = {{(void *)(uintptr_t)at, first}, {(void *)(uintptr_t)(at + first), size - 1 - first}};
	memset(to, 0, size);
	return process_vm_readv(pid, &l, 1, r, 2, 0) > 0;
}

static struct uv_file *file_of(const struct stat *s)
{
	struct stat own;
	for (struct uv_device *d = uv_devices(); d; d = d->next)
		for (struct uv_file *f = d->files; f; f = f->next)
			if (f->memory >= 0 && !fstat(f->memory, &own) && own.st_ino == s->st_ino && own.st_dev == s->st_dev)
				return f;
	return NULL;
}

static int reopen(int fd)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_RDWR | O_CLOEXEC);
}

static int serve_open(uint64_t path, int flags)
{
	char name[64];
	struct uv_file *file;
	if (!read_string(current->pid, path, name, sizeof(name)) || uv_device_path(name) < 0)
		return CONTINUE;
	enter_netns(current->pid);
	int err = uv_open(uv_device_path(name), install, &file);
	if (err)
		return err;
	/* The kernel does not count the first open file of a memfd as a writer: this process needs another one for leases. */
	int own = reopen(file->memory), fd = reopen(file->memory);
	int n = own < 0 || fd < 0 ? -EMFILE : put(fd, SECCOMP_ADDFD_FLAG_SEND, flags & O_CLOEXEC);
	if (own >= 0) {
		dup3(own, file->memory, O_CLOEXEC);
		close(own);
	}
	return n < 0 ? -n : SENT; /* reap closes a file that reached no process */
}

static int serve_fstat(uint64_t path, uint64_t to)
{
	char name[2];
	struct stat s;
	struct uv_file *file;
	if (path && (!read_string(current->pid, path, name, sizeof(name)) || *name))
		return CONTINUE;
	if (uv_fstat(current->pid, current->data.args[0], &s) || !(file = file_of(&s)))
		return CONTINUE;
	uv_device_stat(file->device->number, &s);
	return uv_copy_to_user(&caller->task, to, &s, sizeof(s));
}

static int serve_ioctl(void)
{
	struct stat s;
	struct uv_file *file;
	if (uv_fstat(current->pid, current->data.args[0], &s) || !(file = file_of(&s)))
		return CONTINUE;
	enter_netns(current->pid);
	return uv_ioctl(file, &caller->task, current->data.args[1], current->data.args[2]);
}

/* An errno, 0, CONTINUE, or SENT. The process is found before the call is known to be alive: its number was not used again. */
static int serve(void)
{
	const __u64 *arg = current->data.args;
	reap();
	caller = process_of(current->pid);
	if (!caller || ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &current->id))
		return CONTINUE;
	switch (current->data.nr) {
#ifdef SYS_open
	case SYS_open: return serve_open(arg[0], arg[1]);
#endif
	case SYS_openat: return serve_open(arg[1], arg[2]);
	case SYS_fstat: return serve_fstat(0, arg[1]);
	case SYS_newfstatat: return serve_fstat(arg[1], arg[2]);
	default: return serve_ioctl();
	}
}

static void *work(void *arg);

static void add_worker(void)
{
	pthread_t thread;
	__atomic_add_fetch(&idle, 1, __ATOMIC_RELAXED);
	if (pthread_create(&thread, NULL, work, NULL))
		_exit(125);
	pthread_detach(thread);
}

/* The last thread that waited makes another one: a call that DELAY holds, for a process that was killed meanwhile, too, holds
 * no other call. */
static void *work(void *arg)
{
	(void)arg;
	for (;;) {
		struct seccomp_notif n = {0};
		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &n)) {
			if (errno == EINTR || errno == ENOENT)
				continue;
			perror("uverbsd: receiving a call");
			return NULL;
		}
		if (!__atomic_sub_fetch(&idle, 1, __ATOMIC_RELAXED))
			add_worker();
		current = &n;
		uv_lock();
		int err = serve();
		uv_unlock();
		struct seccomp_notif_resp r = {.id = n.id, .error = -err};
		if (err == CONTINUE)
			r = (struct seccomp_notif_resp){.id = n.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
		if (err != SENT)
			(void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &r); /* ENOENT: the caller was killed */
		__atomic_add_fetch(&idle, 1, __ATOMIC_RELAXED);
	}
}

/* The first thread without the filter: the others without it come from it. It notices the ends of files and processes between calls. */
static void *server(void *arg)
{
	(void)arg;
	while (sem_wait(&filtered))
		;
	add_worker();
	for (;;) {
		uv_lock();
		reap();
		uv_unlock();
		usleep(20000);
	}
	return NULL;
}

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define LOW 4
#else
#define LOW 0
#endif
#define LOAD(member) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, member))
#define ARG(i) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + 8 * (i) + LOW)
#define UNLESS(value, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip)
#define RETURN(action) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_##action)
#define OPENS(nr, flags)                                                                                             \
	UNLESS(nr, 5), ARG(flags), BPF_STMT(BPF_ALU | BPF_AND | BPF_K, O_ACCMODE | O_CREAT | O_DIRECTORY), UNLESS(O_RDWR, 1),  \
		RETURN(USER_NOTIF), RETURN(ALLOW)

/* libibverbs opens devices for reading and writing: other opens are not served, so that they cost nothing. */
static struct sock_filter filter[] = {
#if defined(__x86_64__)
	LOAD(arch), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0), RETURN(ALLOW),
#elif defined(__aarch64__)
	LOAD(arch), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_AARCH64, 1, 0), RETURN(ALLOW),
#endif
	LOAD(nr),
	UNLESS(SYS_ioctl, 4), ARG(1), UNLESS(RDMA_VERBS_IOCTL, 1), RETURN(USER_NOTIF), RETURN(ALLOW),
	UNLESS(SYS_fstat, 1), RETURN(USER_NOTIF),
	UNLESS(SYS_newfstatat, 4), ARG(3), BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, AT_EMPTY_PATH, 0, 1), RETURN(USER_NOTIF), RETURN(ALLOW),
	UNLESS(SYS_socket, 6), ARG(0), UNLESS(AF_NETLINK, 3), ARG(2), UNLESS(20 /* NETLINK_RDMA */, 1), RETURN(ERRNO | EPROTONOSUPPORT), RETURN(ALLOW),
	OPENS(SYS_openat, 2),
#ifdef SYS_open
	OPENS(SYS_open, 1),
#endif
	RETURN(ALLOW),
};

/* A user who may not install a filter for set-id programs renounces their privileges. */
static int install_filter(void)
{
	struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
	unsigned flags = SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
	int fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
	if (fd < 0 && errno == EACCES && !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
	return fd;
}

static void forward(int signal) { kill(command, signal); }

static void execute(char **argv, pid_t parent, const sigset_t *mask)
{
	pthread_sigmask(SIG_SETMASK, mask, NULL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(125);
	execvp(argv[0], argv);
	int err = errno;
	fprintf(stderr, "uverbsd: executing %s: %s\n", argv[0], strerror(err));
	_exit(err == ENOENT ? 127 : 126);
}

/* The status is the command's, or 128 and the signal that ended it; 125 to 127 are as env(1) has them. */
int main(int argc, char **argv)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
	pthread_t thread;
	sigset_t all, mask;
	int status;
	pid_t self = getpid();
	if (argc < 2 || argv[1][0] == '-') {
		fprintf(stderr, "usage: uverbsd COMMAND [ARGUMENT]...\nRuns the command over the uverbs kernel in software, whose devices FLOWTALLY_IBVTEST_DEVICES names.\n");
		return 2;
	}
	sem_init(&filtered, 0, 0);
	signal(SIGCHLD, SIG_DFL); /* ignored, it would hide the status of the command */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &mask); /* the threads take no signals */
	if (pthread_create(&thread, NULL, server, NULL)) {
		fprintf(stderr, "uverbsd: starting a thread: %s\n", strerror(errno));
		return 125;
	}
	if ((listener = install_filter()) < 0) {
		fprintf(stderr, "uverbsd: installing the seccomp filter: %s: it needs Linux 5.19 or later, and that no process above has a seccomp listener\n",
			strerror(errno));
		return 125;
	}
	sem_post(&filtered);
	if ((command = fork()) == 0)
		execute(argv + 1, self, &mask);
	if (command < 0) {
		perror("uverbsd: starting the command");
		return 125;
	}
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		signal(signals[i], forward);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	while (waitpid(command, &status, 0) < 0)
		if (errno != EINTR)
			_exit(125);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}
