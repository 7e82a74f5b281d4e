//go:build darwin || freebsd

package ipc

// maxSocketPath is the maximum length of a path in bytes: sun_path has 104, including the NUL.
const maxSocketPath = 103

// noSignal is 0: SO_NOSIGPIPE is set on every socket.
const noSignal = 0
