// Package daemon is the server: decode loop, HTTP APIs, start and shutdown. Its options are in package config.
//
// It has three main goroutines: the poller (package ipc) owns the sockets, intake renders and tokenizes, and the decode
// loop owns the engine and every request. docs/ARCHITECTURE.md follows a token through them.
//
// # Where things are
//
// Options:
//
//	config/           every option, its layers and range; which file a model's name means, and whether it fits
//	opening/          the options as the configurations of the scheduler, the core and the engine; the files that an
//	                  engine process may open; devices; the progress of a load
//
// From a parsed request to one that the decode loop can run:
//
//	admission/        which user's request is refused when the server is full, and which is prepared next: answers
//	                  before texts to embed and background requests; --limits
//	loading.go        what requests hear while the model loads
//	stage/            where a request is, and who owns it there
//	cancel.go         who may cancel it, and what a cancel does in each stage
//	viewing/          when the images of a request are encoded: one at a time, in turns of users
//	intake.go         the goroutine that prepares requests and constrains their answers
//	prepare/          the loaded model; prompts, sampling chains, texts to embed; targets.go is where a request's
//	                  targets, class and thinking budget come from
//
// Constrained answers:
//
//	constrain/        which grammars hold an answer, when, and which tokens need no logits row because only one can
//	                  follow; constrained.go has the calls of intake and of the decode loop
//
// The decode loop:
//
//	loop.go           the order of a turn; loop_step.go decodes and samples, and verifies guesses by sampling their
//	                  rows; loop_notes.go passes on what the core decided
//	command.go        commands of other goroutines, through mailbox/; tasks that they have it do between two steps
//	think.go          probe rows, forks and forced tokens
//	speculate.go      the limit of guesses; opening what makes them (package drafts), and its part of a step
//	embed_loop.go     how many texts of one request run at once
//	emit.go           what is sent to which client, and when; clients that do not read
//	calls.go          tool calls of an answer; said/ keeps the answer so far
//	account/          metrics: the moments of a request, a step, the gauges; account.go is when the loop counts;
//	                  recorder/ writes --trace
//	device.go         the turn of this engine process among others (seat/)
//	processors/       compute threads beside other processes, and --power
//	calibration/      the saved cost model
//	overlap.go        what of a step is done while the next one is computed
//
// Cells outside the pool:
//
//	tiers/            host memory, disk, the fabric; tiers_loop.go is the loop as they use it
//	hostmemory.go     the host tier's size while the daemon runs
//
// Questions:
//
//	report/                           the answers, from values; facts about a model; dumps
//	why.go, kv.go, status.go          the values of why, kv, health (stallAfter: when it says "stalled"); info
//	live/             live views; live_loop.go has the loop's side
//	dump.go           when the loop's state is dumped
//	telemetry.go      what a trace says of a request
//
// Clients:
//
//	entry/            sockets, poller, limits and counters of connections, which a front (daemon/front) has, too
//	http/             which requests may ask, their limits, paths, and streams; api/ the APIs
//	access/           which owner a TCP client is, and who may ask over TCP
//	web.go            the Server as http/ uses it; served/ answers what is asked about the model
//
// The process:
//
//	server.go         a Server; open.go reads the model and makes the loop
//	serve.go          the phases of Serve: listen, start, run, drain, stop
//	handler.go        the poller's side of requests and questions; cancel.go of cancels
//	engine.go         an engine process behind a front; link/ their messages
package daemon
