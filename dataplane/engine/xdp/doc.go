// Package xdp is the software backend: it counts flows in XDP and TCX programs.
// An instance has one set of tables in the kernel for all of its interfaces.
//
// compile turns a flow into rules. [Backend.AddShadows] puts the rules and a counter into
// the tables. [Backend.SetActive] attaches programs to the hooks where a flow needs its
// counts. Flows counted in hardware have rules and a counter here as well: their shadows.
//
// Rules, counters and programs are pinned, so they survive the process. A new process
// first compares the configured flows with the pins (match.go) and writes nothing.
// [Backend.Install] then takes pinned counters over, and [Backend.RemoveStale] removes
// the rest of the pins.
//
// A hook can be lost: its device goes away, or somebody detaches our program. links.go
// watches for both, and retake.go attaches again. The ledger of package xdp records the
// end of each outage and of each move between XDP and TCX. From it, [Backend.Outage]
// tells the engine which totals may lack packets or count some of them twice.
//
// Backend.mu serializes control calls and the link watcher. [Backend.Read] and
// [Backend.ReadRows] take no lock of this package.
package xdp
