package exportrows

import (
	"fmt"
	"io"
	"net"
)

// crowd is clients that ask an exporter and do not read what it answers.
type crowd struct {
	address string
	conns   []net.Conn
}

// come connects the clients, and returns when each has the first byte of its response. After an error, leave closes
// those that have come.
func (c *crowd) come() error {
	for range readers {
		conn, err := net.Dial("tcp", c.address)
		if err != nil {
			return err
		}
		c.conns = append(c.conns, conn)

		// A small buffer leaves the response in the exporter's memory.
		if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
			return err
		}
		if _, err := io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return err
		}
	}

	for _, conn := range c.conns {
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			return fmt.Errorf("waiting for a response that is not read: %w", err)
		}
	}
	return nil
}

// leave closes the connections of come.
func (c *crowd) leave() {
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}
