// Package fold evaluates a program's constants before the kernel loads the program: [Program] replaces loads of a frozen section
// by their values, and leaves out what these decide.
//
// The verifier knows the constants too, and removes the branches that it never follows. But it keeps every load of a constant,
// every computation with one, and a decided branch whose other side is reached in another way. Some CPUs take longer for these
// than for the packet.
//
// Each function is folded by itself, in five steps:
//
//   - propagate.go finds the values that are the same on every way to an instruction.
//   - simplify.go rewrites instructions that use these values.
//   - live.go removes instructions whose results nobody uses.
//   - turn.go inverts tests so that what goes aside is behind the rest, and makes one jump of a mask and its test.
//   - layout.go arranges the rest with few jumps.
package fold
