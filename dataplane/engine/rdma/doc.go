// Package rdma is the hardware backend: it counts flows in the flow tables of RDMA devices.
//
// A flow on several interfaces has rules and a slot on each device, and its count is the sum of the slots. Rules go to a
// device through DevX (mlx5dv_create_flow) if the device has it, otherwise through verbs (ibv_create_flow). The table in
// match.go says which matches they express exactly. Flows with other matches are refused.
//
// Hardware has few priorities, and no order among the rules of one priority. So overlapping flows get levels in the order
// of their precedence (levels.go). To move a flow to a later level, we add its rules there before we remove the old ones.
//
// Each device has a goroutine that reads the slots, one command at a time, within one budget of commands for all devices
// (reader.go). [Backend.ReadTimed] returns the last samples. Another goroutine per device waits for its events, and one
// for all devices searches for lost and missing devices (devices.go).
//
// A lost device counts nothing. A slot of another backend can stand in for it while the other devices of a flow count on
// (standin.go). Rules and slots end with the process, so a new process starts all flows anew.
//
// Backend.mu serializes the control methods and the goroutines, except for the readers. Samples are read without it.
package rdma
