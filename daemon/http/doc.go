// Package httpd serves HTTP: it checks who asks, reads a body within its limits, and lets the APIs (daemon/api)
// answer. The folder is daemon/http; the package has another name because it imports net/http.
//
// It reaches the rest of the daemon through [Daemon] alone. A front (daemon/front) has a [Server] with other routes
// and no Daemon.
//
//	http.go      the server of the connections that the poller hands over
//	guard.go     whether a request over TCP may ask at all (daemon/access)
//	rejected.go  errors are counted
//	bounded.go   how long a header and a body may take; bodybudget.go how many bytes bodies that arrive may hold
//	routes.go    which paths exist; those of an API are its package's Routes
//	paths.go     which process answers a path, and in which form errors are written
//	backend.go   requests of the APIs' handlers
//	asleep.go    what is answered for a model that is not loaded
//	live.go      GET /live (daemon/live)
//	errors.go    errors as responses
package httpd
