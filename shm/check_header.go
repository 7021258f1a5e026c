package shm

import "sync/atomic"

// reservedHeader lists the parts of the header that must be zero in version 1.
var reservedHeader = [][2]uint64{
	{hdrHistory + 4, hdrFile},
	{hdrFile + 8, hdrChecksum},
	{fixedSize, hdrGeneration},
	{hdrTakeovers + 8, hdrHeartbeat},
	{hdrState + 4, hdrCycleBegun},
	{hdrPollPeriod + 8, hdrCatalogueChanges},
	{hdrSegments + 4, hdrRefused},
	{hdrRecordLimit + 4, hdrHistoryIntent},
	{hdrHistoryTail + 8, hdrReplaced},
	{hdrReplaced + 8, hdrDeviceGeneration},
	{hdrDeviceLength + 8, hdrTable},
	{hdrTable + maxSegments*segmentDescriptorSize, headerSize},
}

func (c *checker) header() {
	c.reserved()
	c.undeclared()
	c.writerWords()
	c.cycles()
	c.highMarks()
}

// reserved checks the unused bytes of the header, and those after the history ring.
func (c *checker) reserved() {
	v := c.v
	b := bytesOf(v.hdr)
	for _, r := range reservedHeader {
		c.zero("header", r[0], b[r[0]:r[1]])
	}
	if n := ringLength(v.fixed.history); n > 0 {
		end := uint64(len(v.history)) * historySize
		c.zero("history", headerSize+end, v.maps[1].b[end:n])
	}
}

// undeclared checks the number of segments, and that no descriptor behind it is in use.
func (c *checker) undeclared() {
	v, h := c.v, c.v.hdr
	if n := atomic.LoadUint32(&h.segments); n > maxSegments {
		c.add("header", hdrSegments, "%d segments, where %d are the most", n, maxSegments)
	}

	// Skip the first descriptor after the declared ones: a writer describes a segment before it declares it. After each
	// descriptor load the number again, because a writer may have declared that segment meanwhile.
	for n := v.declared() + 1; n < maxSegments; n++ {
		d := &h.table[n]
		kind, high := atomic.LoadUint32(&d.kind), atomic.LoadUint32(&d.high)
		if (kind != 0 || high != 0) && n > v.declared() {
			c.add("header", hdrTable+uint64(n)*segmentDescriptorSize, "descriptor of segment %d is not 0, there are %d", n, v.declared())
			break
		}
	}
}

// writerWords checks the words that describe the writer.
func (c *checker) writerWords() {
	h := c.v.hdr
	if atomic.LoadUint64(&h.generation) == 0 {
		c.add("header", hdrGeneration, "generation is 0")
	}
	state := State(atomic.LoadUint32(&h.state))
	if state < Boot || state > Fail {
		c.add("header", hdrState, "state %d is unknown", state)
	}
	if p := atomic.LoadInt64(&h.heartbeatPeriod); p <= 0 {
		c.add("header", hdrHeartbeatPeriod, "heartbeat period is %d ns", p)
	}
	if p := atomic.LoadInt64(&h.pollPeriod); p < 0 {
		c.add("header", hdrPollPeriod, "poll period is %d ns", p)
	}
	if d := atomic.LoadInt64(&h.coolDown); d < 0 {
		c.add("header", hdrCoolDown, "cool-down is %d ns", d)
	}
}

func (c *checker) cycles() {
	h := c.v.hdr
	done := atomic.LoadUint64(&h.cycleDone) // before begun, because a writer may begin another cycle in between
	begun := atomic.LoadUint64(&h.cycleBegun)
	if done > begun {
		c.add("header", hdrCycleDone, "cycle %d is done, but only %d begun", done, begun)
	}
	if begun >= 1<<63 { // the numbers of the next writer could wrap around
		c.add("header", hdrCycleBegun, "cycle %d is begun, where no mirror comes", begun)
	}
}

func (c *checker) highMarks() {
	v := c.v
	for n := range v.declared() {
		if high := atomic.LoadUint32(&v.hdr.table[n].high); high > SegmentLen {
			c.add("header", hdrTable+uint64(n)*segmentDescriptorSize+segHigh, "%d slots of segment %d used, there are %d", high, n, SegmentLen)
		}
	}
}
