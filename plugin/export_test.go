package plugin

// Handshake is for the tests of this directory that run real processes.
var Handshake = handshake

// ChildExited is closed when the plugin process of this moment is reaped.
func (c *Client) ChildExited() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cur.child.Exited
}
