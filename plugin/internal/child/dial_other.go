//go:build !linux

package child

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
)

// dialSocket looks at the file before it connects to it.
func dialSocket(ctx context.Context, path string) (net.Conn, error) {
	info, err := os.Lstat(path)
	if err == nil && info.Mode().Type() != fs.ModeSocket {
		err = &fs.PathError{Op: "dial", Path: path, Err: errors.New("not a socket, and links are not followed")}
	}
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	return d.DialContext(ctx, "unix", path)
}
