// Package admission decides which requests are in the server, and which of them is prepared next. It counts them and
// knows who has sent them; what they ask it does not know.
//
//	waitroom.go  the queue before intake: which user's request is refused when the server is full, and which is next:
//	             answers before texts to embed and background requests
//	refusals.go  what clients hear while the model loads, and while the server stops
//	sessions.go  the live requests of each connection
//	quotas.go    what --limits bounds beside the queues of the classes
package admission
