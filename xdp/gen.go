package xdp

// The compiler is pinned: the objects are committed, and CI builds them again and compares.
//go:generate go tool bpf2go -cc clang-14 -target bpfel,bpfeb -type ft_tuple -type ft_one_rule flowtally bpf/flowtally.bpf.c -- -O2 -g -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu
