package daemon

import (
	"time"

	"github.com/uma-serve/uma-serve/core"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/runtime"
)

// commandKind is the kind of a command to the decode loop.
type commandKind uint8

const (
	cmdArrive    commandKind = iota // req is ready to be computed
	cmdCancel                       // req's client cancelled or disconnected
	cmdWritable                     // conn's send ring has room again
	cmdDrain                        // refuse new requests; stop when the running ones are done
	cmdStop                         // stop now
	cmdEndThink                     // req's client ends the thinking
	cmdHistory                      // tokens is the prefix of req's next turn; nil: unknown
	cmdStored                       // the next part of restore stored may be ready
	cmdOffloaded                    // the tier has the thought of request offloaded
	cmdOffer                        // there is something to offer to the fabric
	cmdTask                         // run task between two steps
	cmdAwaited                      // likewise, also if the loop ends: a goroutine waits for task
)

// command crosses to the decode loop by value, through a mailbox. Its senders bound that: the waitroom admits fewer
// than twice --max-queue + --parallel requests, each is cancelled once and ends its thinking once, a connection is
// reported writable once per stall, a restore once per part, and the fabric once per answer.
type command struct {
	kind      commandKind
	req       *request
	conn      ipc.Client
	tokens    []runtime.Token
	stored    core.RestoreID
	offloaded core.ID
	tier      core.Tier // that has it
	task      task
}

// task is work on the loop's state that another goroutine has the loop do between two steps.
type task interface {
	run(l *loop, now time.Time)
}

// arriving returns the requests that the loop has not taken yet.
func (l *loop) arriving() (list []*request) {
	l.mail.Each(func(c *command) {
		if c.kind == cmdArrive {
			list = append(list, c.req)
		}
	})
	return list
}
