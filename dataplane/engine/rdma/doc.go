// Package rdma is the hardware backend: it counts flows in the flow tables of RDMA devices.
//
// A flow of several interfaces has a rule set and a slot on the device of each, and its count is their sum. The
// steering API of a device is DevX (mlx5dv_create_flow) where the device has it, and verbs (ibv_create_flow)
// otherwise. The table in match.go says which matches each of them can express exactly; a flow that neither can is refused.
//
// Hardware has few priorities, and no order among the rules of one. So overlapping flows get levels in the order of
// their precedence, and a rule moves to a later level by a second rule, which exists before the first is removed
// (levels.go).
//
// One goroutine per device reads the slots, one command at a time, within a budget of commands for all devices
// (reader.go). [Backend.ReadTimed] returns the last samples. A second goroutine waits for events of the device, and
// one for all devices searches for devices that are lost or were missing at the start (devices.go).
//
// A device that is lost counts nothing. A slot of another backend can stand in for it, while the other devices of the
// flow go on (standin.go). Rules and slots end with the process: no flow of an earlier process is found again.
//
// Backend.mu serialises the control methods and the goroutines, apart from the readers. Samples are read without it.
package rdma
