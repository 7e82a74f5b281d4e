// Package wireclient is the client of this module's programs and tests. It has the protocol's types of package
// ipc/wire, which may change; package client is the one for other modules, and stands on this one. What client's
// documentation says about cancelling and concurrency is done here.
package wireclient
