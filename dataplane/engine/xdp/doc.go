// Package xdp is the software backend: it counts flows in XDP and TCX programs.
// One rule set holds the flows of the instance for all of its interfaces.
//
// compile turns a flow into rules. [Backend.AddShadows] puts rules and a counter into
// the kernel's tables; [Backend.SetActive] attaches programs to the hooks where some
// flow needs its counts. A flow that hardware counts has rules and a counter too:
// its shadow.
//
// Rules, counters and programs are pinned, so that they survive the process.
// [New] matches the configured flows with them (match.go), before anything is written.
// [Backend.Install] carries the match out. What no flow took over stays until
// [Backend.RemoveStale].
//
// A hook can be lost: its device goes, or another program detaches ours. links.go
// watches for that and attaches again. The ledger of package xdp has the end of each
// such outage, and of each move between XDP and TCX. By [Backend.Outage] the engine
// knows which totals may lack packets, or have some of them twice.
//
// Backend.mu serialises control calls and the link watcher. [Backend.Read] and
// [Backend.ReadRows] take no lock of this package.
package xdp
