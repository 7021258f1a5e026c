// Command quickstart counts a flow and prints its counter. The backend sim invents the packets, so the program needs
// no privilege and no NIC. With Interfaces in place of Backend it counts the packets of these interfaces, as root.
//
//	make build
//	PATH=$PWD/bin:$PATH go run ./examples/quickstart
package main
