package pollrows

// The same compiler and flags as package xdp's.
//go:generate go tool bpf2go -cc clang-14 -target bpfel,bpfeb wire bpf/wire.bpf.c -- -O2 -g -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu
