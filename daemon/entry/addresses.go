package entry

import (
	"fmt"

	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/wire/reports"
)

// Addresses describes the listening sockets, for clients.
type Addresses struct {
	Socket    string   // path of the Unix socket
	Listen    []string // URLs
	Listeners []reports.InfoListener
}

// urlOf returns the URL of a TCP address.
func urlOf(ln *ipc.Listener) string {
	if ln.Secure() {
		return "https://" + ln.Address()
	}
	return "http://" + ln.Address()
}

// Addresses returns those of the sockets, in an engine process those of its front.
func (e *Entry) Addresses() Addresses {
	if e.passed != nil {
		return e.passed.Addresses
	}
	a := Addresses{Socket: e.Listeners[0].Path()}
	for _, ln := range e.Listeners {
		url := "unix://" + ln.Address()
		in := reports.InfoListener{Network: ln.Network(), Address: ln.Address(), Accepted: ln.Accepted(), Users: "uid"}
		if tcp := ln.TCP(); tcp.IsValid() {
			url, in.TLS = urlOf(ln), ln.Secure()
			byUser := ln.Users() == nil && e.Access.Mode&0o222 != 0 &&
				(tcp.Addr().IsLoopback() || tcp.Addr().IsUnspecified())
			in.Mode = fmt.Sprintf("%04o", e.Access.Mode)
			switch {
			case byUser && e.Access.Keys != nil:
				in.Users = "uid, key"
			case e.Access.Keys != nil:
				in.Users = "key"
			}
		}
		a.Listen, a.Listeners = append(a.Listen, url), append(a.Listeners, in)
	}
	return a
}
