package main

import (
	"fmt"
	"os"

	"github.com/uma-serve/uma-serve/mcp"
)

// runBridge runs the process between the daemon and one MCP server.
func runBridge() (status int) {
	if err := mcp.Bridge(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "uma-serve: MCP bridge:", err)
		return 1
	}
	return 0
}
