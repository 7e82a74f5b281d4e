package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/uma-serve/uma-serve/client"
	"github.com/uma-serve/uma-serve/internal/cli/buildinfo"
)

// Limits of the server.
const (
	// MaxMessageBytes bounds a message of a client, in bytes.
	MaxMessageBytes = 4 << 20
	// MaxPromptBytes bounds the text that a call sends to the model, in bytes.
	MaxPromptBytes = 1 << 20
	// MaxResultBytes bounds the text of a result, in bytes.
	MaxResultBytes = 1 << 20
	// MaxCalls bounds the calls and resources that are answered at the same time.
	MaxCalls = 16
	// MaxAnswerTokens is the largest max_tokens of a call, DefaultAnswerTokens its default.
	MaxAnswerTokens     = 32768
	DefaultAnswerTokens = 1024
	// CallTimeout bounds a call.
	CallTimeout = 10 * time.Minute
)

// Server is an MCP server for one daemon.
type Server struct {
	// Socket is the daemon's; "" is the default one.
	Socket string
	// Model is asked where a call names none; "" is the daemon's default.
	Model string
	// Log gets the SDK's messages; nil drops them.
	Log *slog.Logger

	slots chan struct{}
	sdk   *sdk.Server
}

// instructions tell the client's model what the server is for.
const instructions = "Tools of uma-serve, the local LLM server of this machine. chat and complete ask its model. " +
	"Each answer has a request id: why with that id tells how long the request waited, computed its prompt and " +
	"generated, and which decisions of the scheduler delayed it. kv shows which prefixes are cached. models lists " +
	"the models."

// NewServer returns a server whose fields are set.
func NewServer(s Server) *Server {
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	s.slots = make(chan struct{}, MaxCalls)
	s.sdk = sdk.NewServer(&sdk.Implementation{Name: "uma-serve", Title: "uma-serve", Version: buildinfo.Version},
		&sdk.ServerOptions{Instructions: instructions, Logger: s.Log, Capabilities: &sdk.ServerCapabilities{},
			// The reports are of one user's requests; the protocol's default lets a shared cache keep them.
			SetCacheable: func(_ context.Context, _ sdk.Request, c *sdk.Cacheable) { c.CacheScope = "private" }})
	s.addTools()
	s.addResources()
	return &s
}

// ServeStdio serves one client on in and out until in ends or ctx does.
func (s *Server) ServeStdio(ctx context.Context, in io.ReadCloser, out io.WriteCloser) error {
	err := s.sdk.Run(ctx, &sdk.IOTransport{Reader: in, Writer: out, MaxLineLength: MaxMessageBytes})
	if err == nil || errors.Is(err, io.EOF) || ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serve MCP on standard input: %w", err)
}

// enter takes a slot for a call and bounds its time. The caller calls leave.
func (s *Server) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	select {
	case s.slots <- struct{}{}:
	default:
		return nil, nil, fmt.Errorf("%d calls run already, the most at a time; call again when one has ended", MaxCalls)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, CallTimeout,
		fmt.Errorf("the call took more than %v, the most; ask for fewer tokens", CallTimeout))
	return ctx, func() { cancel(); <-s.slots }, nil
}

// dial connects to the daemon. Each call has a connection, so that a call which ends early ends its request alone.
func (s *Server) dial(ctx context.Context) (*client.Client, error) {
	c, err := client.Dial(ctx, s.Socket)
	if errors.Is(err, client.ErrNoDaemon) {
		return nil, fmt.Errorf("%w; start it with: uma-serve -m MODEL", err)
	}
	return c, err
}
