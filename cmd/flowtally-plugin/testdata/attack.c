/*
 * attack.so is loaded as libibverbs by a plugin, and does what a plugin that was taken over would try. Its only function
 * runs as it is loaded. It appends a line "PID ATTEMPT ERRNO" for each attempt to the file ATTACK_REPORT, which the
 * plugin may write; 0 means that the attempt succeeded. ATTACK_HOST is the PID of the host, ATTACK_SOCKET the name of
 * an abstract socket, on which the host listens.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static FILE *report;

static void tell(const char *attempt, long result)
{
	fprintf(report, "%d %s %d\n", getpid(), attempt, result < 0 ? errno : 0);
	fflush(report);
}

static void try_open(const char *attempt, const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0600);
	tell(attempt, fd);
	if (fd >= 0)
		close(fd);
}

static void try_connect(const char *attempt, const void *address, socklen_t length)
{
	int family = *(const sa_family_t *)address;
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	tell(attempt, connect(fd, address, length));
	close(fd);
}

/* try_shell has a shell write to the file, which would be confined no more if executing a file lifted it. */
static void try_shell(const char *attempt, const char *command)
{
	pid_t pid = fork();
	if (pid == 0) {
		execl("/bin/sh", "sh", "-c", command, (char *)0);
		_exit(127);
	}
	int status = 0;
	waitpid(pid, &status, 0);
	errno = EACCES;
	tell(attempt, WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1);
}

__attribute__((constructor)) static void attack(void)
{
	const char *path = getenv("ATTACK_REPORT"), *host = getenv("ATTACK_HOST"), *name = getenv("ATTACK_SOCKET");
	if (!path || !host || !name || !(report = fopen(path, "ae")))
		return;
	pid_t pid = atoi(host);
	char mem[64], word[8], own[4096];
	snprintf(mem, sizeof mem, "/proc/%d/mem", pid);
	snprintf(own, sizeof own, "%s.%d", path, getpid());
	try_open("own-file", own, O_RDWR | O_CREAT);

	try_open("write-shadow", "/etc/shadow", O_WRONLY);
	try_open("read-shadow", "/etc/shadow", O_RDONLY);
	try_open("write-library", "/usr/lib/flowtally-attack.so", O_WRONLY | O_CREAT);
	try_open("make-file", "/tmp/flowtally-attack", O_WRONLY | O_CREAT);
	tell("make-directory", mkdir("/usr/flowtally-attack", 0700));
	tell("link-out", link(own, "/etc/flowtally-attack"));
	tell("move-out", rename(own, "/etc/flowtally-attack"));
	try_shell("write-by-shell", "echo x >/root/flowtally-attack");

	try_open("memory-of-init", "/proc/1/mem", O_RDWR);
	try_open("memory-of-host", mem, O_RDWR);
	struct iovec here = {word, sizeof word}, there = {(void *)0x1000, sizeof word};
	tell("read-host", process_vm_readv(pid, &here, 1, &there, 1, 0));
	long traced = ptrace(PTRACE_ATTACH, pid, 0, 0);
	tell("trace-host", traced);
	if (traced == 0)
		ptrace(PTRACE_DETACH, pid, 0, 0);
	tell("signal-host", kill(pid, 0));

	struct sockaddr_in tcp = {.sin_family = AF_INET, .sin_port = htons(1), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	try_connect("connect-tcp", &tcp, sizeof tcp);
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	strncpy(un.sun_path + 1, name, sizeof un.sun_path - 2);
	try_connect("connect-abstract", &un, offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));

	/* What it may do, beside its own file. */
	try_open("library", "/usr/bin/env", O_RDONLY);
	try_open("groups", "/etc/group", O_RDONLY);
	fclose(report);
}
