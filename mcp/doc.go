// Package mcp speaks the Model Context Protocol through its official Go SDK, on both sides, and is the only package
// that imports the SDK.
//
// [Server] offers the daemon's models and reports to agents as tools and resources (uma-serve mcp). It is a client of
// the daemon like any other.
//
// [Bridge] is the process between the daemon and one MCP server of the configuration. It confines itself, starts or
// calls the server, and answers package toolbox's lines. A server that misbehaves costs that process.
package mcp
