// Package client talks to uma-serve over the daemon's Unix socket.
//
//	c, err := client.Dial(ctx, "") // "" is the default socket
//	if err != nil { … }
//	defer c.Close()
//
//	answer, err := c.Chat(ctx, client.NewRequest(client.User("Why is the sky blue?")))
//	if err != nil { … }
//	fmt.Println(answer.Text)
//
// The tokens as they come:
//
//	s, err := c.Stream(ctx, client.NewRequest(client.User("Why is the sky blue?")))
//	if err != nil { … }
//	for token, err := range s.Tokens() {
//		if err != nil { … }
//		os.Stdout.Write(token.Text)
//	}
//	fmt.Println(s.End().Usage.CompletionTokens, "tokens")
//
// A [Request] has the daemon's defaults but for the fields that the caller sets: r.MaxTokens = 100, r.Temperature =
// new(0.2). docs/protocol.md describes each field. [Stream.Next] returns every event, progress reports included.
//
// # Tools
//
// A request offers functions in Tools. The answer's Calls name those that the model wants; the program runs them and
// asks again:
//
//	r.Tools = []client.Tool{{Name: "get_weather", Parameters: []byte(`{"type":"object"}`)}}
//	answer, err := c.Chat(ctx, r)
//	if err != nil { … }
//	r.Messages = append(r.Messages, answer.Message())
//	for _, call := range answer.Calls {
//		r.Messages = append(r.Messages, client.ToolResult(call, run(call.Name, call.Arguments)))
//	}
//	answer, err = c.Chat(ctx, r)
//
// In a stream, [Stream.Next] returns the parts of a call as [Event.ToolCall]. [Request.Format] asks for an answer that
// is JSON, fits a schema, or matches a regular expression or a grammar.
//
// # Embeddings
//
//	found, err := c.Embed(ctx, client.EmbedTexts("a text", "another"))
//	if err != nil { … }
//	vectors, err := found.Vectors()
//
// With [RankTexts] a model that ranks scores documents for a query.
//
// # Errors
//
// A request that the daemon refuses or fails returns a [*ServerError]. Its Code says what the client can do about it:
//
//	refused, ok := errors.AsType[*client.ServerError](err)
//	if ok && refused.Code == client.QueueLimit { wait refused.RetryAfter, then send the request again }
//
// [ErrNoDaemon] means that no daemon listens on the socket, [ErrClosed] that the connection ended early. A context that
// ends returns its cause.
//
// # The daemon
//
// [Client.Info], [Client.Why] and the like return JSON. A program decodes the members that it needs:
//
//	var info struct{ Model struct{ Name string } }
//	report, err := c.Info(ctx)
//	if err != nil { … }
//	err = report.Decode(&info)
//
// # Cancelling
//
// When the context of a request ends, the daemon cancels the request within one decode step, and the connection stays
// usable. [Stream.Cancel] cancels it too and still delivers the end event, with the usage. [Stream.Close] cancels a
// stream whose remaining events are not wanted. [Client.Close] cancels every request on the connection.
//
// # Concurrency
//
// A connection carries any number of requests at the same time. All methods of a [Client] are safe for concurrent use.
// A [Stream] belongs to one goroutine at a time, but any goroutine may call its Cancel and EndThink.
//
// The package starts no reader goroutine: the goroutine that waits for an event reads the socket. With one stream a
// token costs one read and no switch between threads, which matters on the machine whose cores compute the tokens. With
// several streams the first waiting goroutine reads for all of them: it appends a frame of another stream to that
// stream's pending bytes and wakes its goroutine. While no goroutine waits, the daemon's bounded buffer holds the
// events back, and the daemon then pauses the requests of this connection.
//
// Therefore read every stream to its end, cancel its context, or close it: the frames of an abandoned stream stay in
// memory while other streams are read.
//
// # OpenAI's API
//
// The same socket serves OpenAI's API over HTTP. [HTTP] returns an http.Client for it, which libraries for that API
// accept.
package client
