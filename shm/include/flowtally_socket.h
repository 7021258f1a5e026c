/* SPDX-License-Identifier: Apache-2.0
 *
 * flowtally_socket.h: connecting to a socket beside a mirror, and receiving a message and
 * a descriptor from it.
 *
 * The other end must belong to root, the caller or the user that the options name. Each
 * wait for it takes a second at most, or two where signals interrupt it. For the other
 * headers, from any thread. Linux only.
 */
#ifndef FLOWTALLY_SOCKET_H
#define FLOWTALLY_SOCKET_H

#include "flowtally_file.h"

#ifdef __cplusplus
extern "C" {
#endif

#if !defined FLOWTALLY_SHARED && defined __linux__
enum { FT_SOCKET_MOST = 128 }; /* bytes of a message */

/* Whether a call that began then is to be repeated, as a signal has interrupted it. The kernel
 * begins its wait anew. */
static inline int ft_socket_again(int64_t began) { return errno == EINTR && ft_now() - began < 1000000000; }

/* Receives a message of size bytes and its descriptor; *fd is -1 if no descriptor
 * came. absent is the result if the other end sends nothing. FT_ERR_SYSTEM with EMFILE: the
 * process could not have the descriptor that came. */
static inline int ft_socket_receive(int s, unsigned char *message, size_t size, int *fd, int absent) {
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(4 * sizeof(int))];
	} control;
	unsigned char buffer[FT_SOCKET_MOST + 1];
	struct iovec part = {buffer, size + 1};
	struct msghdr m;
	ssize_t n;
	int got = 0;
	const int64_t began = ft_now();
	*fd = -1;
	memset(&m, 0, sizeof m);
	m.msg_iov = &part;
	m.msg_iovlen = 1;
	m.msg_control = control.room;
	m.msg_controllen = sizeof control.room;
	do n = recvmsg(s, &m, MSG_CMSG_CLOEXEC);
	while (n < 0 && ft_socket_again(began));
	if (n < 0) return absent;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c != NULL; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
		for (size_t at = CMSG_LEN(0); at + sizeof(int) <= c->cmsg_len; at += sizeof(int), got++) {
			int one;
			memcpy(&one, (const unsigned char *)c + at, sizeof one);
			if (got == 0)
				*fd = one;
			else
				ft_close_file(one);
		}
	}
	if (n != (ssize_t)size || got > 1) return n == 0 && got == 0 ? absent : FT_ERR_CORRUPT;
	if (got == 0 && (m.msg_flags & MSG_CTRUNC)) {
		errno = EMFILE;
		return FT_ERR_SYSTEM;
	}
	memcpy(message, buffer, size);
	return FT_OK;
}

static inline int ft_socket_join(int s, const char *path, const ft_options *options, int absent) {
	struct sockaddr_un to;
	struct { /* struct ucred of Linux, which the C library declares under _GNU_SOURCE alone */
		int32_t pid;
		uint32_t uid, gid;
	} peer;
	socklen_t length = sizeof peer;
	const struct timeval bound = {1, 0};
	const int64_t began = ft_now();
	int connected;
	memset(&to, 0, sizeof to);
	to.sun_family = AF_UNIX;
	if (strlen(path) >= sizeof to.sun_path) return absent; /* no socket has that path */
	memcpy(to.sun_path, path, strlen(path));
	if (setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof bound) != 0) return FT_ERR_SYSTEM;
	if (setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof bound) != 0) return FT_ERR_SYSTEM;
	do connected = connect(s, (const struct sockaddr *)(const void *)&to, sizeof to);
	while (connected != 0 && ft_socket_again(began));
	if (connected != 0) return errno == EACCES || errno == EPERM ? FT_ERR_PERMISSION : absent;
	if (getsockopt(s, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return FT_ERR_SYSTEM;
	return ft_trusted(peer.uid, options) ? FT_OK : FT_ERR_OWNER;
}

/* Connects to the socket with that suffix beside the mirror. absent is the result if there is
 * no such socket. *s is -1 after a failure. */
static inline int ft_socket_connect(const char *mirror, const char *suffix, const ft_options *options, int absent, int *s) {
	char *path = ft_beside(mirror, suffix);
	*s = -1;
	if (path == NULL) return FT_ERR_MEMORY;
	*s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	const int err = *s < 0 ? FT_ERR_SYSTEM : ft_socket_join(*s, path, options, absent);
	free(path);
	if (err) {
		ft_close_file(*s);
		*s = -1;
	}
	return err;
}
#endif

#ifdef __cplusplus
}
#endif

#endif /* FLOWTALLY_SOCKET_H */
