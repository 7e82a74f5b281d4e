package ipc

import "github.com/uma-serve/uma-serve/ipc/wire"

// Client is a client as a Handler has it: a *Conn, or a *Local within the process. A Client may be kept: its methods do
// nothing once the client has gone. They are safe from any goroutine, and within a Handler's method, and do not block.
type Client interface {
	// ID is the client's number in logs, unique within the process.
	ID() uint64
	// UID is the client's user, the owner of its requests.
	UID() uint32
	// SendEvent takes a whole event, or nothing of it, and copies what it takes. The next Flush sends it.
	SendEvent(ev *wire.Event) SendResult
	// Flush sends what was taken, as far as that needs no waiting.
	Flush()
	// ReplyEvent sends a short answer (to an admin question, or an error) at once, also when SendEvent takes nothing.
	ReplyEvent(ev *wire.Event)
	// Done ends the request id ("" in the newline protocol): the client may use the id again. The Handler calls it
	// exactly once for each Request, Embed and Line, after the last SendEvent.
	Done(id string)
	// Close ends the client at once. Handler.Closed follows.
	Close()
}

// Handler handles the messages of clients. Its methods run on the Loop's goroutine for a *Conn, on that of its user for
// a *Local, and must not block: they delay all clients.
type Handler interface {
	// Request is a generation request. Its id is in flight, and unique on c, until the Handler calls c.Done(r.ID),
	// exactly once, also when the request is refused or the client has gone. r is the Handler's.
	Request(c Client, r *wire.Request)
	// Embed is a request for embeddings. What is said of Request holds for it too.
	Embed(c Client, e *wire.Embed)
	// Line is a prompt of the newline protocol, valid UTF-8 without NUL. Answer it and then call c.Done(""). The next
	// line of c comes after that.
	Line(c *Conn, prompt string)
	// Cancel ends the request id, which is in flight on c.
	Cancel(c Client, id string)
	// EndThink ends the thinking of the request id, which is in flight on c.
	EndThink(c Client, id string)
	// Admin answers a question of q.Kind (metrics, health, info, why or kv) with c.ReplyEvent: a report with the
	// question's id, which may be "", or an error. Another goroutine may answer later; the answer is lost if c ends
	// before.
	Admin(c Client, q *wire.Frame)
	// Writable says that c has room again after SendEvent has returned Full. Called once for any number of Fulls.
	Writable(c Client)
	// Closed says that c has ended: cancel its requests in flight. Each still needs its Done. It is not called for a
	// *Local without one.
	Closed(c Client, cause Cause)
}
