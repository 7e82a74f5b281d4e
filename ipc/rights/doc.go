// Package rights has the descriptors that come over a Unix socket with bytes (SCM_RIGHTS): those of connections, which
// a front passes to its engine processes, and those of files, which a client sends with a frame and names in it.
package rights
