package xdprows

// The same compiler and flags as package xdp's.
//go:generate go tool bpf2go -cc clang-14 -target bpfel,bpfeb rows bpf/bench.bpf.c -- -O2 -g -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu
//go:generate go tool bpf2go -cc clang-14 -target bpfel,bpfeb trace bpf/trace.bpf.c -- -O2 -g -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu
//go:generate go tool bpf2go -cc clang-14 -target bpfel,bpfeb hand bpf/hand.bpf.c -- -O2 -g -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu
//go:generate go tool bpf2go -cc clang-14 -target bpfel,bpfeb lpm bpf/lpm.bpf.c -- -O2 -g -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu
//go:generate go tool bpf2go -cc clang-14 -target bpfel,bpfeb members bpf/members.bpf.c -- -O2 -g -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu
