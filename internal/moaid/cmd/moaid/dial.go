package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
)

func init() {
	commands = append(commands, command{"dial", "copy stdin and stdout to the management socket", runDial})
}

func runDial(ctx context.Context, args []string) int {
	fs := flag.NewFlagSet("dial", flag.ContinueOnError)
	socket := fs.String("socket", "/run/moai/manage.sock", "path of the unix socket")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	if err := dial(ctx, *socket, os.Stdin, os.Stdout); err != nil {
		return fail("dial", err)
	}
	return 0
}

// dial copies in to the socket and the socket to out. The end of in closes only
// the socket's writing half, so that the rest of an answer still arrives; the
// end of the socket ends everything.
func dial(ctx context.Context, socket string, in io.Reader, out io.Writer) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("connect to the KV daemon: %w; is moai-kvd.service running on this host?", err)
	}
	conn, ok := c.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("%s is no unix socket", socket)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer func() { _ = conn.Close() }()
	go func() {
		// This goroutine may outlive the call when in never ends: the process
		// exits then. A broken socket shows in the other direction.
		_, _ = io.Copy(conn, in)
		_ = conn.CloseWrite()
	}()
	if _, err := io.Copy(out, conn); err != nil && ctx.Err() == nil {
		return fmt.Errorf("copy from the KV daemon: %w", err)
	}
	return nil
}
