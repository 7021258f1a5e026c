package view

import (
	"fmt"

	"github.com/flowtally/flowtally/cmd/internal/format"
	"github.com/flowtally/flowtally/internal/lab/demo"
)

// Demo returns a table that compares the sent with the counted packets of each flow.
func Demo(counts []demo.Count) string {
	if len(counts) > 0 && counts[0].XDPPackets != nil {
		return demoBeside(counts)
	}
	t := format.Table{Heading: []string{"FLOW", ">SENT", ">COUNTED", ">SENT BYTES", ">COUNTED BYTES", ""}}
	for _, c := range counts {
		note := "exact"
		if !c.Exact() {
			note = demoDifference(c)
		}
		t.Add(c.Name, format.Count(c.SentPackets), format.Count(c.Packets), format.Count(c.SentBytes), format.Count(c.Bytes), note)
	}
	return t.Render()
}

// demoBeside is Demo with XDP's counts of the same traffic beside those of RDMA.
func demoBeside(counts []demo.Count) string {
	t := format.Table{Heading: []string{"FLOW", ">SENT", ">RDMA", ">XDP", ">SENT BYTES", ">RDMA BYTES", ">XDP BYTES", "COUNTED BY", ""}}
	for _, c := range counts {
		note := "exact"
		if !c.Exact() {
			note = demoDifference(c)
		}
		t.Add(c.Name, format.Count(c.SentPackets), format.Count(c.Packets), format.Count(*c.XDPPackets),
			format.Count(c.SentBytes), format.Count(c.Bytes), format.Count(*c.XDPBytes), c.Source, note)
	}
	return t.Render()
}

// demoDifference says by how much a flow differs.
func demoDifference(c demo.Count) string {
	if c.SentPackets == 0 {
		return "nothing sent"
	}
	text := fmt.Sprintf("%+d packets, %+d bytes", int64(c.Packets-c.SentPackets), int64(c.Bytes-c.SentBytes))
	if c.XDPPackets != nil {
		text += fmt.Sprintf("; xdp %+d packets, %+d bytes", int64(*c.XDPPackets-c.SentPackets), int64(*c.XDPBytes-c.SentBytes))
	}
	return text
}

// DemoVerdict returns the last line: how much was sent, and whether all of it was counted.
func DemoVerdict(r demo.Report) string {
	var sum demo.Count
	differing := uint64(0)
	for _, c := range r.Flows {
		sum.SentPackets += c.SentPackets
		sum.SentBytes += c.SentBytes
		if !c.Exact() {
			differing++
		}
	}

	sent := fmt.Sprintf("%s packets (%s) sent over %d flows", format.Count(sum.SentPackets), format.Bytes(sum.SentBytes), len(r.Flows))
	if r.SoftwareNIC {
		sent += " to a NIC that is software"
	}
	switch {
	case r.Exact && r.SoftwareNIC:
		return sent + ": every one counted by rdma and by xdp, exactly once each, and every byte of it.\n"
	case r.Exact:
		return sent + ": every one counted, exactly once, and every byte of it.\n"
	}
	return sent + ": " + format.Plural(differing, "flow differs", "flows differ") + ".\n"
}

// DemoLive returns the table while traffic flows. It shows no differences, because packets are still under way.
func DemoLive(counts []demo.Count) string {
	t := format.Table{Heading: []string{"FLOW", ">SENT", ">COUNTED", ">COUNTED BYTES"}}
	for _, c := range counts {
		t.Add(c.Name, format.Count(c.SentPackets), format.Count(c.Packets), format.Count(c.Bytes))
	}
	return t.Render()
}
