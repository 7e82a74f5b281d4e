package ipc

// Peer is who sits at the other end, as the kernel recorded it when the connection was made. It is the identity of
// a client: nothing it sends can change it.
type Peer struct {
	UID uint32
	GID uint32 // the effective group at connect
	PID int32  // 0 where the kernel does not tell; by now it may be another process's
}
